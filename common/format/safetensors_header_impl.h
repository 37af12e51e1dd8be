// Constants that the writer and the reader of a bin's header share.
#ifndef CAIRN_COMMON_FORMAT_SAFETENSORS_HEADER_IMPL_H_
#define CAIRN_COMMON_FORMAT_SAFETENSORS_HEADER_IMPL_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace cairn {

// The eight digits behind this text are the header's own checksum. It covers the header with zeros in their place.
inline constexpr std::string_view kOwnChecksum = R"(\"header_crc32c\":\")";
inline constexpr std::string_view kNoChecksum = "00000000";
// The end of the metadata.
inline constexpr std::string_view kClose = R"(}","format":"pt"})";

inline std::string ChecksumHex(uint32_t value) { return std::string(absl::StrCat(absl::Hex(value, absl::kZeroPad8))); }

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_SAFETENSORS_HEADER_IMPL_H_
