// Makes outcomes of a later version of Cairn.
#ifndef CAIRN_COMMON_FORMAT_TESTING_NEWER_OUTCOME_H_
#define CAIRN_COMMON_FORMAT_TESTING_NEWER_OUTCOME_H_

#include <cstdint>
#include <string>

#include "common/base/crc32c.h"

namespace cairn {

// Returns `outcome` with another version, below 256, and a matching checksum.
inline std::string OfVersion(std::string outcome, uint8_t version) {
  outcome[8] = static_cast<char>(version);
  const uint32_t crc = ExtendCrc32c(Crc32c(outcome.data(), 20), outcome.data() + 24, outcome.size() - 24);
  for (size_t i = 0; i < 4; ++i) outcome[20 + i] = static_cast<char>(crc >> (8 * i));
  return outcome;
}

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_TESTING_NEWER_OUTCOME_H_
