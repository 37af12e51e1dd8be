#include "common/status/fault.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn {

std::string RanksText(std::span<const int> ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", JoinRanks(ranks));
}

void FaultList::Add(Fault fault) {
  ++total_;
  if (faults_.size() < kMostKept) faults_.push_back(std::move(fault));
}

absl::Status FaultList::ToStatus() const {
  if (empty()) return absl::OkStatus();
  constexpr size_t kRoom = 440;  // leaves room for the count within a message's limit
  const Fault& first = faults_.front();
  std::string text = first.message;
  size_t told = 1;
  while (told < faults_.size() && text.size() + faults_[told].message.size() + 2 <= kRoom) {
    absl::StrAppend(&text, "; ", faults_[told++].message);
  }
  if (told < total_) absl::StrAppend(&text, "; and ", total_ - told, " more");
  ErrorMetadata metadata = {{"faults", absl::StrCat(total_)}};
  if (!first.name.empty()) {
    metadata.emplace_back("tensor", first.name);
    metadata.emplace_back("name", first.name);
  }
  if (!first.ranks.empty()) metadata.emplace_back("ranks", JoinRanks(first.ranks));
  return MakeError(first.reason, text, metadata);
}

}  // namespace cairn
