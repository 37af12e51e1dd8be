#include "store/read/step_marks.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr std::string_view kEnding = ".mark";
constexpr std::string_view kPinned = "pinned";
constexpr std::string_view kUnpinned = "unpinned";
constexpr std::string_view kTag = "tag-";
constexpr std::string_view kUntag = "untag-";

struct Change {
  std::string tag;
  bool set = false;
};

// Reads the words behind the number.
std::optional<Change> ParseChange(std::string_view words) {
  if (words == kPinned || words == kUnpinned) return Change{"", words == kPinned};
  for (const std::string_view begin : {kTag, kUntag}) {
    if (!words.starts_with(begin)) continue;
    std::string tag(words.substr(begin.size()));
    if (!CheckTag(tag).ok()) return std::nullopt;
    return Change{std::move(tag), begin == kTag};
  }
  return std::nullopt;
}

}  // namespace

std::string StepMarks::NameOf(const std::string& tag, const ChangeNumber& number, bool set) {
  const std::string_view word = tag.empty() ? (set ? kPinned : kUnpinned) : (set ? kTag : kUntag);
  return absl::StrCat(ToString(number), "-", std::string(word), tag, std::string(kEnding));
}

void StepMarks::Add(std::string_view name) {
  if (name == kPinName) {
    records_[""].push_back({std::string(name), {}, true});
  } else if (auto tag = ParseTagName(name); tag.has_value()) {
    records_[*std::move(tag)].push_back({std::string(name), {}, true});
  }
  if (!name.ends_with(kEnding)) return;
  const std::string_view text = name.substr(0, name.size() - kEnding.size());
  const size_t end = text.find('-', std::min(text.size(), text.find('-') + 1));
  if (end == text.npos) return;
  const auto number = ParseChangeNumber(text.substr(0, end));
  auto change = ParseChange(text.substr(end + 1));
  if (number.has_value() && change.has_value()) {
    records_[std::move(change->tag)].push_back({std::string(name), *number, change->set});
  }
}

std::vector<StepMarks::Record> StepMarks::RecordsOf(const std::string& tag) const {
  const auto found = records_.find(tag);
  if (found == records_.end()) return {};
  std::vector<Record> records = found->second;
  // Nobody makes two with one number; if there are two, the one that protects counts.
  std::sort(records.begin(), records.end(),
            [](const Record& a, const Record& b) { return std::tie(a.number, a.set) < std::tie(b.number, b.set); });
  return records;
}

bool StepMarks::IsSet(const std::string& tag) const {
  const std::vector<Record> records = RecordsOf(tag);
  return !records.empty() && records.back().set;
}

std::vector<std::string> StepMarks::tags() const {
  std::vector<std::string> tags;
  for (const auto& [tag, records] : records_) {
    if (!tag.empty() && IsSet(tag)) tags.push_back(tag);
  }
  return tags;
}

absl::StatusOr<StepMarks> ReadMarks(Storage& storage, const std::string& job, int64_t step) {
  StepMarks marks;
  const auto entries = storage.List(StepDirectory(job, step));
  if (HasReason(entries.status(), Reason::kFileMissing)) return marks;
  CAIRN_RETURN_IF_ERROR(entries.status());
  for (const Storage::Entry& entry : *entries) marks.Add(entry.name);
  return marks;
}

absl::StatusOr<std::optional<std::string>> ReadMark(Storage& storage, const std::string& job, int64_t step,
                                                    const std::string& tag) {
  // Each further try means that the mark was changed meanwhile.
  constexpr int kTries = 3;
  absl::Status gone;
  for (int tries = 0; tries < kTries; ++tries) {
    CAIRN_ASSIGN_OR_RETURN(const StepMarks marks, ReadMarks(storage, job, step));
    if (!marks.IsSet(tag)) return std::nullopt;
    const std::string name = marks.RecordsOf(tag).back().name;
    auto text = storage.Read(absl::StrCat(StepDirectory(job, step), "/", name), kMaxMarkBytes);
    if (!HasReason(text.status(), Reason::kFileMissing)) {
      CAIRN_RETURN_IF_ERROR(text.status());
      return *std::move(text);
    }
    gone = text.status();
  }
  return gone;
}

}  // namespace cairn
