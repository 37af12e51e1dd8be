// Makes verdicts as a later version of Cairn would write them.
#ifndef CAIRN_COMMON_FORMAT_TESTING_NEWER_VERDICT_H_
#define CAIRN_COMMON_FORMAT_TESTING_NEWER_VERDICT_H_

#include <cstdint>
#include <string>

#include "common/base/crc32c.h"

namespace cairn {

// Returns `verdict` with another version, below 256, and the checksum that is right for it.
inline std::string OfVersion(std::string verdict, uint8_t version) {
  verdict[8] = static_cast<char>(version);
  const uint32_t crc = ExtendCrc32c(Crc32c(verdict.data(), 20), verdict.data() + 24, verdict.size() - 24);
  for (size_t i = 0; i < 4; ++i) verdict[20 + i] = static_cast<char>(crc >> (8 * i));
  return verdict;
}

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_TESTING_NEWER_VERDICT_H_
