#include "agent/session/kept_save.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace cairn {

std::optional<uint64_t> KeptSave::OffsetOf(const v1::ReadFile& file) const {
  for (size_t i = 0; i < image->file.size() && i < static_cast<size_t>(result.files_size()); ++i) {
    const ImageFile& own = image->file[i];
    const v1::FileResult& written = result.files(static_cast<int>(i));
    if (file.path() != absl::StrFormat("%012d/%04d/%s.safetensors", step, attempt, own.name)) continue;
    const bool same = file.header_bytes() == own.header_bytes && file.file_bytes() == own.bytes() &&
                      file.file_bytes() == written.file_bytes() && file.header_crc32c() == written.header_crc32c();
    return same ? std::optional(own.slab_offset) : std::nullopt;
  }
  return std::nullopt;
}

bool KeptSave::IsReadBy(const v1::ReadPlan& plan) const {
  return std::any_of(plan.files().begin(), plan.files().end(),
                     [this](const v1::ReadFile& file) { return OffsetOf(file).has_value(); });
}

}  // namespace cairn
