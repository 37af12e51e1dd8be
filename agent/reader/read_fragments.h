// Cuts what is read of a file where its checksums end, so that the parts can be summed one by one and combined.
#ifndef CAIRN_AGENT_READER_READ_FRAGMENTS_H_
#define CAIRN_AGENT_READER_READ_FRAGMENTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cairn/v1/plan.pb.h"

namespace cairn {

// Bytes within one checksum block of an item. `begin` is their offset in the item, which is numbered as in ReadFile.
struct ReadFragment {
  size_t item = 0;
  uint64_t begin = 0;
  uint64_t bytes = 0;
  uint32_t crc32c = 0;  // of the bytes, once they are there
};

// Returns the fragments of [offset, offset + size) of the file, in their order. Bytes that belong to no item of the
// plan, and those of an unverified file, are in none. The plan's items ascend and do not overlap.
std::vector<ReadFragment> CutAtChecksums(const v1::ReadFile& file, uint64_t offset, uint64_t size);

}  // namespace cairn

#endif  // CAIRN_AGENT_READER_READ_FRAGMENTS_H_
