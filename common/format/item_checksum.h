// Computes the checksums of a file's items and of their 1 MiB blocks in one pass over the data. The data comes in
// chunks, which may begin and end anywhere and may be processed in any order.
#ifndef CAIRN_COMMON_FORMAT_ITEM_CHECKSUM_H_
#define CAIRN_COMMON_FORMAT_ITEM_CHECKSUM_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/format/safetensors_header.h"

namespace cairn {

// Item i is the range [begins[i], begins[i + 1]) of the file's data. The last entry of `begins` is the end of the data.
class ItemChecksummer {
 public:
  explicit ItemChecksummer(std::vector<uint64_t> begins);

  // Checksums of what a chunk has of each block, in order.
  struct Fragment {
    uint32_t item = 0;
    uint64_t block = 0;
    uint32_t crc32c = 0;
    uint64_t bytes = 0;
  };
  // Computes the fragments of data[offset, offset + size), which is at `bytes`. Data behind the last item is passed
  // over. Thread-safe.
  std::vector<Fragment> Touch(uint64_t offset, const char* bytes, uint64_t size) const;

  // Returns for each item its CRC32C and those of its blocks, from the fragments of all chunks in the order of the
  // data. `object_bytes` is left 0.
  std::vector<ItemChecksums> Combine(std::span<const std::vector<Fragment>> chunks) const;

 private:
  const std::vector<uint64_t> begins_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_ITEM_CHECKSUM_H_
