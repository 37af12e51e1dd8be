#include "common/format/stored_item.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/printable.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr std::string_view kFlatMark = "#flat:";
constexpr std::string_view kRankMark = "#rank:";

}  // namespace

uint64_t StoredItem::bytes() const {
  const int64_t elements = flat ? flat->end - flat->begin : box.size();
  return static_cast<uint64_t>(elements) * static_cast<uint64_t>(BytesOf(dtype));
}

std::string StoredItem::stored_name() const {
  if (object_rank) return absl::StrCat(name, absl::string_view(kRankMark.data(), kRankMark.size()), *object_rank);
  if (!flat) return name;
  return absl::StrCat(name, absl::string_view(kFlatMark.data(), kFlatMark.size()), absl::StrJoin(box.offset, ","), ":",
                      absl::StrJoin(box.shape, ","), ":", flat->begin, "-", flat->end);
}

absl::Status CheckName(std::string_view name) {
  constexpr size_t kMaxNameBytes = 1024;
  const char* fault = nullptr;
  if (name.empty()) {
    fault = "is empty";
  } else if (name.size() > kMaxNameBytes) {
    fault = "is longer than 1024 bytes";
  } else if (!IsPlainText(name)) {
    fault = "is not UTF-8 without control characters";
  } else if (name == "__metadata__") {
    fault = "is reserved by safetensors";
  } else if (name.find(kFlatMark) != std::string_view::npos || name.find(kRankMark) != std::string_view::npos) {
    fault = "contains a reserved mark, #flat: or #rank:";
  }
  if (fault == nullptr) return absl::OkStatus();
  const std::string shown = Printable(name.substr(0, 80));
  return MakeError(Reason::kBadName, absl::StrCat("the name \"", shown, "\" ", fault), {{"name", shown}});
}

}  // namespace cairn
