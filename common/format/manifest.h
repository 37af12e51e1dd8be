// Encodes and decodes the record that ends an attempt: a manifest (the commit) or a tombstone. docs/storage_format.md
// has its bytes.
#ifndef CAIRN_COMMON_FORMAT_MANIFEST_H_
#define CAIRN_COMMON_FORMAT_MANIFEST_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/format/stored_item.h"
#include "common/tensor/box.h"
#include "common/tensor/dtype.h"

namespace cairn {

struct ManifestTensor {
  std::string name;
  DType dtype = DType::kUnspecified;
  Shape global_shape;
  // Its shards are Manifest::shards[first_shard .. first_shard + shard_count), ordered by (offset, shape, flat range).
  uint32_t first_shard = 0;
  uint32_t shard_count = 0;

  bool operator==(const ManifestTensor&) const = default;
};

struct ManifestFile {
  // The file's name without its ending: "rank00003-bin01". An imported file has its absolute path here.
  std::string name;
  int rank = 0;  // which wrote it
  uint64_t header_bytes = 0;
  uint64_t data_bytes = 0;
  uint32_t header_crc32c = 0;

  uint64_t bytes() const { return header_bytes + data_bytes; }
  // Returns true if Cairn did not write the file, which then has no checksum but the header's. No verdict names such a
  // file.
  bool imported() const { return name.starts_with('/'); }
  bool operator==(const ManifestFile&) const = default;
};

struct ManifestShard {
  uint32_t tensor = 0;
  uint32_t file = 0;
  // The position of the item among the items of its file.
  uint32_t item = 0;
  uint32_t crc32c = 0;
  // Counted from where the file begins, header included.
  uint64_t file_offset = 0;
  uint64_t bytes = 0;
  // In Manifest::dims from this index on: ndim offsets, then ndim sizes, then the range if the piece is flat.
  uint32_t dims = 0;
  bool flat = false;

  bool operator==(const ManifestShard&) const = default;
};

struct ManifestObject {
  std::string name;
  // Set for an object of which every rank has its own.
  std::optional<int> rank;
  uint32_t file = 0;
  uint32_t item = 0;
  uint64_t file_offset = 0;
  uint64_t slot_bytes = 0;
  // The true length, at most that of the slot.
  uint64_t bytes = 0;
  // The checksum of the whole slot.
  uint32_t crc32c = 0;

  bool operator==(const ManifestObject&) const = default;
};

// Describes a whole checkpoint. It is a value type and takes about 50 bytes per shard and 8 per dimension entry.
struct Manifest {
  std::string job;
  int64_t step = 0;
  uint32_t attempt = 0;
  std::string request_id;
  uint32_t world_size = 0;
  absl::Time commit_time = absl::UnixEpoch();
  std::string writer;
  std::string plan_digest;
  std::vector<std::string> layout_digests;
  std::vector<uint32_t> rank_layout;
  std::vector<std::string> nodes;
  std::vector<uint32_t> rank_node;
  std::vector<ManifestTensor> tensors;  // by name
  std::vector<ManifestFile> files;
  std::vector<ManifestShard> shards;
  std::vector<int64_t> dims;
  std::vector<ManifestObject> objects;                       // by (name, rank)
  std::vector<std::pair<std::string, std::string>> aliases;  // name, target; by name

  std::span<const int64_t> offset_of(const ManifestShard& shard) const;
  std::span<const int64_t> shape_of(const ManifestShard& shard) const;
  Box box_of(const ManifestShard& shard) const;
  std::optional<FlatRange> flat_range_of(const ManifestShard& shard) const;
  // Returns the shard as its bin holds it.
  StoredItem item_of(const ManifestShard& shard) const;
  static StoredItem item_of(const ManifestObject& object);
  // Returns the path below the job's directory: "000000000042/0001/rank00003-bin01.safetensors".
  std::string path_of(const ManifestFile& file) const;
  // Returns the sum of the lengths of all files.
  uint64_t total_bytes() const;

  // Computes file_offset, bytes and slot positions of all items, and data_bytes of the files, from item numbers and
  // shapes. DATA_LOSS (MANIFEST_CORRUPT): the numbers of a file are not 0..n-1, or a file has 2^63 bytes or more.
  absl::Status PlaceItems();

  bool operator==(const Manifest&) const = default;
};

struct Tombstone {
  std::string job;
  int64_t step = 0;
  uint32_t attempt = 0;
  std::string request_id;
  // A name from the table of reasons.
  std::string reason;
  std::string message;
  absl::Time time = absl::UnixEpoch();

  bool operator==(const Tombstone&) const = default;
};

using Verdict = std::variant<Manifest, Tombstone>;

// Returns the bytes of a verdict: magic "CAIRNVRD", version, length, CRC32C, one zstd frame of a
// cairn.v1.VerdictRecord.
std::string EncodeVerdict(const Verdict& verdict);

// Checks by the head and the checksum, in linear time, that the bytes are what a writer put there. It does not decode
// the record. DATA_LOSS (MANIFEST_CORRUPT), FAILED_PRECONDITION (FORMAT_TOO_NEW): as DecodeVerdict.
absl::Status CheckVerdict(std::string_view bytes);

// Reads a verdict. `bytes` are untrusted: sizes, indices and positions are checked, and memory is bounded by what the
// record really holds and by `max_record_bytes`, the size of the largest record after decompression. DATA_LOSS
// (MANIFEST_CORRUPT): it is no verdict, is cut off, or has a wrong checksum or number; the message says which.
// FAILED_PRECONDITION (FORMAT_TOO_NEW): it has the right checksum and a higher version. RESOURCE_EXHAUSTED
// (MEMORY_LIMIT): the system refused the memory.
absl::StatusOr<Verdict> DecodeVerdict(std::string_view bytes, uint64_t max_record_bytes = uint64_t{1} << 30);

// Returns true if what is left of a damaged verdict shows that it was the manifest of this attempt: up to the damage,
// its zstd frame gives a record that begins like a manifest and not like a tombstone. False proves nothing.
bool ShowsManifestOf(std::string_view bytes, std::string_view job, int64_t step, uint32_t attempt);

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_MANIFEST_H_
