// The record that ends an attempt: a manifest (the commit) or a tombstone. docs/storage_format.md has its bytes.
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
  // Its shards are Manifest::shards[first_shard .. first_shard + shard_count), by (offset, shape, flat range).
  uint32_t first_shard = 0;
  uint32_t shard_count = 0;

  bool operator==(const ManifestTensor&) const = default;
};

struct ManifestFile {
  // The file's name without its ending: "rank00003-bin01". For an imported file this is its absolute path.
  std::string name;
  int rank = 0;  // that wrote it
  uint64_t header_bytes = 0;
  uint64_t data_bytes = 0;
  uint32_t header_crc32c = 0;

  uint64_t bytes() const { return header_bytes + data_bytes; }
  // True if Cairn did not write the file, so that there are no checksums but the header's. No verdict says so.
  bool imported() const { return name.starts_with('/'); }
  bool operator==(const ManifestFile&) const = default;
};

struct ManifestShard {
  uint32_t tensor = 0;
  uint32_t file = 0;
  // Position of the item among the items of its file.
  uint32_t item = 0;
  uint32_t crc32c = 0;
  // From the begin of the file, header included.
  uint64_t file_offset = 0;
  uint64_t bytes = 0;
  // Manifest::dims[dims ..]: ndim offsets, then ndim sizes, then for a flat piece its range.
  uint32_t dims = 0;
  bool flat = false;

  bool operator==(const ManifestShard&) const = default;
};

struct ManifestObject {
  std::string name;
  // Set for an object of which every rank has one of its own.
  std::optional<int> rank;
  uint32_t file = 0;
  uint32_t item = 0;
  uint64_t file_offset = 0;
  uint64_t slot_bytes = 0;
  // The true length, which is at most that of the slot.
  uint64_t bytes = 0;
  // The checksum of the whole slot.
  uint32_t crc32c = 0;

  bool operator==(const ManifestObject&) const = default;
};

// The global description of a checkpoint. Value type; about 50 bytes per shard and 8 per dimension entry.
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
  // The shard as its bin holds it.
  StoredItem item_of(const ManifestShard& shard) const;
  static StoredItem item_of(const ManifestObject& object);
  // "000000000042/0001/rank00003-bin01.safetensors", below the job's directory.
  std::string path_of(const ManifestFile& file) const;
  // Lengths of all files.
  uint64_t total_bytes() const;

  // Fills file_offset, bytes and slot positions of all items and the files' data_bytes from item numbers and shapes.
  // DATA_LOSS (MANIFEST_CORRUPT): the numbers of a file are not 0..n-1, or a file has 2^63 bytes or more.
  absl::Status PlaceItems();

  bool operator==(const Manifest&) const = default;
};

struct Tombstone {
  std::string job;
  int64_t step = 0;
  uint32_t attempt = 0;
  std::string request_id;
  // A name of the table of reasons.
  std::string reason;
  std::string message;
  absl::Time time = absl::UnixEpoch();

  bool operator==(const Tombstone&) const = default;
};

using Verdict = std::variant<Manifest, Tombstone>;

// Bytes of a verdict: magic "CAIRNVRD", version, length, CRC32C, one zstd frame of a cairn.v1.VerdictRecord.
std::string EncodeVerdict(const Verdict& verdict);

// Checks by the head and the checksum, in linear time, that the bytes are those that a writer has put there. It does
// not look at what they say.
// DATA_LOSS (MANIFEST_CORRUPT), FAILED_PRECONDITION (FORMAT_TOO_NEW): as DecodeVerdict.
absl::Status CheckVerdict(std::string_view bytes);

// Reads a verdict. `bytes` are untrusted: sizes, indices and positions are checked, and memory is bounded by what the
// record truly holds and by `max_record_bytes`, the largest decompressed record.
// DATA_LOSS (MANIFEST_CORRUPT): not a verdict, cut off, or a checksum or number is wrong; the message says which.
// FAILED_PRECONDITION (FORMAT_TOO_NEW): a record whose checksum is right says a higher version.
// RESOURCE_EXHAUSTED (MEMORY_LIMIT).
absl::StatusOr<Verdict> DecodeVerdict(std::string_view bytes, uint64_t max_record_bytes = uint64_t{1} << 30);

// Whether what is left of a damaged verdict shows that it was the manifest of this attempt: its zstd frame gives, up to
// the damage, a record that begins as a manifest does and not as a tombstone. False proves nothing.
bool ShowsManifestOf(std::string_view bytes, std::string_view job, int64_t step, uint32_t attempt);

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_MANIFEST_H_
