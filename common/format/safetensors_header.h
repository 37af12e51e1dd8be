// The header of a bin: a plain safetensors header that torch's HuggingFace storage reader takes, and that says enough
// of Cairn's own to rebuild the manifest and to check any part of the data. docs/storage_format.md has it byte by byte.
//
// Format: huggingface/safetensors README, "Format". Its length depends only on the items, not on their checksums or on
// the objects' true lengths, so all positions of a file are known before a byte is written.
#ifndef CAIRN_COMMON_FORMAT_SAFETENSORS_HEADER_H_
#define CAIRN_COMMON_FORMAT_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/stored_item.h"

namespace cairn {

// Data begins on a multiple of this, so that it can be written and read directly.
inline constexpr uint64_t kDataAlignment = 4096;
// The limit of the safetensors format.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

// Says whose file it is: what a manifest says and the items do not. It takes the same room in every header, so that one
// plan serves all steps.
struct BinIdentity {
  std::string job;
  int64_t step = 0;
  uint32_t attempt = 0;
  int rank = 0;  // that wrote it
  uint32_t world_size = 0;
  uint32_t files = 0;  // of the whole attempt

  bool operator==(const BinIdentity&) const = default;
};

// Second names of tensors: name, target.
using AliasList = std::vector<std::pair<std::string, std::string>>;

// Adds up the length of a header item by item, without writing it. Linear in the items; order does not matter.
class HeaderSizer {
 public:
  void Add(const StoredItem& item);
  // The same for an item whose part of the header was measured in another way: `inner_bytes` is what Add would add to
  // inner_bytes().
  void AddMeasured(uint64_t inner_bytes, uint64_t data_bytes);
  void AddAlias(std::string_view name, std::string_view target);
  // Length of all items' own parts of the header, without the digits of their positions.
  uint64_t inner_bytes() const { return inner_bytes_; }
  // Length of the header with its 8 bytes of length and its padding: a multiple of kDataAlignment.
  uint64_t PaddedBytes() const;

 private:
  uint64_t inner_bytes_ = 0;
  uint64_t alias_bytes_ = 0;
  uint64_t data_bytes_ = 0;
  uint64_t items_ = 0;
};

// The checksums of an item, which become known while it is written.
struct ItemChecksums {
  uint32_t crc32c = 0;
  // One per block of kChecksumBlockBytes.
  std::vector<uint32_t> blocks;
  // For an object: its true length, at most its slot. Bytes behind it are zero.
  uint64_t object_bytes = 0;
};

// The padded header of a file that holds `items` in this order, without gaps. `checksums` is parallel to it. The job's
// name must be sound (CheckJobName).
std::string RenderHeader(std::span<const StoredItem> items, std::span<const ItemChecksums> checksums,
                         const BinIdentity& identity = {}, const AliasList& aliases = {});

struct ParsedItem {
  StoredItem item;
  // Relative to the begin of the data.
  uint64_t begin = 0;
  uint64_t end = 0;
  ItemChecksums checksums;
};

struct ParsedHeader {
  // With the 8 bytes of length and the padding: where the data begins in the file.
  uint64_t header_bytes = 0;
  uint64_t data_bytes = 0;
  // By position.
  std::vector<ParsedItem> items;
  // Files of earlier versions have none.
  std::optional<BinIdentity> identity;
  AliasList aliases;
};

// Length of the header by the first 8 bytes of a file, the 8 included.
// DATA_LOSS (BAD_SAFETENSORS): more than the format allows, or no multiple of kDataAlignment.
absl::StatusOr<uint64_t> HeaderBytesFrom(std::string_view first_8_bytes);

// Reads the header of a bin that Cairn wrote. `bytes` are untrusted; memory is bounded by their length.
// DATA_LOSS (BAD_SAFETENSORS): not such a header, or not as it was written; the message says where. FAILED_PRECONDITION
// (FORMAT_TOO_NEW).
absl::StatusOr<ParsedHeader> ParseHeader(std::string_view bytes);

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_SAFETENSORS_HEADER_H_
