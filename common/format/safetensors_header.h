// Writes and reads the header of a bin: a plain safetensors header that torch's HuggingFace storage reader accepts. It
// also holds the metadata that Cairn needs to rebuild the manifest and to check any part of the data.
// docs/storage_format.md describes it byte by byte.
//
// The README of huggingface/safetensors describes the format, under "Format". The header's length depends only on the
// items, not on their checksums or on the objects' true lengths, so all positions of a file are known before a byte is
// written.
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

// Data begins on a multiple of this, so that direct I/O can write and read it.
inline constexpr uint64_t kDataAlignment = 4096;
// This limit comes from the safetensors format.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

// Says which checkpoint and rank a file belongs to. A manifest knows this, and the items do not. It takes the same
// number of bytes in every header, so that one plan serves all steps.
struct BinIdentity {
  std::string job;
  int64_t step = 0;
  uint32_t attempt = 0;
  int rank = 0;  // of the writer
  uint32_t world_size = 0;
  uint32_t files = 0;  // of the whole attempt

  bool operator==(const BinIdentity&) const = default;
};

// Second names of tensors, as pairs of name and target.
using AliasList = std::vector<std::pair<std::string, std::string>>;

// Computes the length of a header item by item, without writing it. Linear in the items, which may come in any order.
class HeaderSizer {
 public:
  void Add(const StoredItem& item);
  // Does the same for an item of known length: `inner_bytes` is the amount that Add would add to inner_bytes().
  void AddMeasured(uint64_t inner_bytes, uint64_t data_bytes);
  void AddAlias(std::string_view name, std::string_view target);
  // Returns the total length of the items' entries in the header, without the digits of their positions.
  uint64_t inner_bytes() const { return inner_bytes_; }
  // Returns the length of the header in the file, with its 8 bytes of length and its padding: a multiple of
  // kDataAlignment.
  uint64_t PaddedBytes() const;

 private:
  uint64_t inner_bytes_ = 0;
  uint64_t alias_bytes_ = 0;
  uint64_t data_bytes_ = 0;
  uint64_t items_ = 0;
};

// The checksums of an item, which are known once it is written.
struct ItemChecksums {
  uint32_t crc32c = 0;
  // One for each block of kChecksumBlockBytes.
  std::vector<uint32_t> blocks;
  // The true length of an object, at most that of its slot. The bytes behind it are zero.
  uint64_t object_bytes = 0;
};

// Returns the padded header of a file that holds `items` in the given order, without gaps. `checksums` has one entry
// per item. CheckJobName must accept the name of the job.
std::string RenderHeader(std::span<const StoredItem> items, std::span<const ItemChecksums> checksums,
                         const BinIdentity& identity = {}, const AliasList& aliases = {});

struct ParsedItem {
  StoredItem item;
  // Relative to where the data begins.
  uint64_t begin = 0;
  uint64_t end = 0;
  ItemChecksums checksums;
};

struct ParsedHeader {
  // Where the data begins in the file: the length of the header, including its 8 bytes of length and its padding.
  uint64_t header_bytes = 0;
  uint64_t data_bytes = 0;
  // Ordered by position.
  std::vector<ParsedItem> items;
  // Absent in files of earlier versions.
  std::optional<BinIdentity> identity;
  AliasList aliases;
};

// Returns the length of the header, including the 8 bytes of length, from the first 8 bytes of a file. DATA_LOSS
// (BAD_SAFETENSORS): the length is more than the format allows, or no multiple of kDataAlignment.
absl::StatusOr<uint64_t> HeaderBytesFrom(std::string_view first_8_bytes);

// Reads the header of a bin that Cairn wrote. `bytes` are untrusted; their length bounds the memory. DATA_LOSS
// (BAD_SAFETENSORS): the bytes are no such header, or differ from what was written; the message says where.
// FAILED_PRECONDITION (FORMAT_TOO_NEW).
absl::StatusOr<ParsedHeader> ParseHeader(std::string_view bytes);

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_SAFETENSORS_HEADER_H_
