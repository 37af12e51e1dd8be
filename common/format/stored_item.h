// Describes one entry of a bin: a shard, a flat piece of a shard, or an object, with its name in the file.
#ifndef CAIRN_COMMON_FORMAT_STORED_ITEM_H_
#define CAIRN_COMMON_FORMAT_STORED_ITEM_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/tensor/box.h"
#include "common/tensor/dtype.h"
#include "common/tensor/flat_range.h"

namespace cairn {

// Items are checked in blocks of this many bytes, counted from where the item begins; the last block may be shorter.
inline constexpr uint64_t kChecksumBlockBytes = uint64_t{1} << 20;

inline uint64_t ChecksumBlockCount(uint64_t item_bytes) {
  return (item_bytes + kChecksumBlockBytes - 1) / kChecksumBlockBytes;
}

struct StoredItem {
  // The fully qualified name of the tensor, or the name of the object.
  std::string name;
  // An object has kUint8, and its `box` is its slot: offset {0}, shape {slot bytes}.
  DType dtype = DType::kUnspecified;
  Shape global_shape;
  Box box;
  // Set for a flat piece, which holds only this range of the box, as a 1-d tensor.
  std::optional<FlatRange> flat;
  bool object = false;
  // Set for an object of which every rank has its own.
  std::optional<int> object_rank;

  // Returns how many bytes the item takes in the file.
  uint64_t bytes() const;
  // Returns the item's name in the file. It is unique there; each flat piece has a name of its own.
  std::string stored_name() const;
};

// INVALID_ARGUMENT (BAD_NAME): the name of a tensor or object is empty, is longer than 1024 bytes, is not UTF-8, has a
// control character, is "__metadata__", or contains a mark that stored names are made with ("#flat:", "#rank:").
absl::Status CheckName(std::string_view name);

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_STORED_ITEM_H_
