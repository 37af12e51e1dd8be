#include "common/format/stored_item.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr std::string_view kFlatMark = "#flat:";
constexpr std::string_view kRankMark = "#rank:";

// Accepts exactly well-formed UTF-8 (Unicode 15, table 3-7) without control characters.
bool IsPrintableUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto at = [&](size_t k) { return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0u; };
    const unsigned lead = at(0);
    const auto tail = [&](size_t k, unsigned low, unsigned high) { return at(k) >= low && at(k) <= high; };
    if (lead < 0x80) {
      if (lead < 0x20 || lead == 0x7f) return false;
      i += 1;
    } else if (lead >= 0xc2 && lead <= 0xdf) {
      if (!tail(1, 0x80, 0xbf) || (lead == 0xc2 && at(1) < 0xa0)) return false;
      i += 2;
    } else if (lead >= 0xe0 && lead <= 0xef) {
      if (!tail(1, lead == 0xe0 ? 0xa0 : 0x80, lead == 0xed ? 0x9f : 0xbf) || !tail(2, 0x80, 0xbf)) return false;
      i += 3;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
      if (!tail(1, lead == 0xf0 ? 0x90 : 0x80, lead == 0xf4 ? 0x8f : 0xbf) || !tail(2, 0x80, 0xbf) ||
          !tail(3, 0x80, 0xbf)) {
        return false;
      }
      i += 4;
    } else {
      return false;
    }
  }
  return true;
}

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
  } else if (!IsPrintableUtf8(name)) {
    fault = "is not UTF-8 without control characters";
  } else if (name == "__metadata__") {
    fault = "is reserved by safetensors";
  } else if (name.find(kFlatMark) != std::string_view::npos || name.find(kRankMark) != std::string_view::npos) {
    fault = "contains a reserved mark, #flat: or #rank:";
  }
  if (fault == nullptr) return absl::OkStatus();
  std::string shown;
  for (char c : name.substr(0, 80)) shown += (c >= 0x20 && c < 0x7f) ? c : '?';
  return MakeError(Reason::kBadName, absl::StrCat("the name \"", shown, "\" ", fault), {{"name", shown}});
}

}  // namespace cairn
