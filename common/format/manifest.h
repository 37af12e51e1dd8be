// Describes a checkpoint: the manifest, which an outcome commits. docs/storage_format.md has its bytes.
#ifndef CAIRN_COMMON_FORMAT_MANIFEST_H_
#define CAIRN_COMMON_FORMAT_MANIFEST_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/format/alarm.h"
#include "common/format/full_name.h"
#include "common/format/metric.h"
#include "common/format/stored_item.h"
#include "common/format/tensor_history.h"
#include "common/tensor/box.h"
#include "common/tensor/dtype.h"
#include "common/tensor/summary.h"

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
  // The file's name without its ending: "rank00003-bin01". An imported file has its full name here
  // (full_name.h).
  std::string name;
  int rank = 0;  // of the writer
  uint64_t header_bytes = 0;
  uint64_t data_bytes = 0;
  uint32_t header_crc32c = 0;
  int64_t modified_ns = 0;  // of an imported file, since the Unix epoch; not stored in outcomes

  uint64_t bytes() const { return header_bytes + data_bytes; }
  // Returns true if another library wrote the file. It has only its header's checksum, and no outcome names it.
  bool imported() const { return IsFullName(name); }
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
  // An index into Manifest::dims. There are ndim offsets, ndim sizes, and begin and end of the range if it is flat.
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

// Says which checkpoint of the job this one builds on; see store/read/lineage.h.
struct Lineage {
  uint64_t line = 0;
  // The step that this lineage continues, and that step's lineage.
  std::optional<int64_t> continues_step;
  uint64_t parent_line = 0;
  // Counts the job's commits from 1. 0: written by a version without lineages.
  uint64_t sequence = 0;

  bool operator==(const Lineage&) const = default;
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
  Lineage lineage;
  std::vector<Metric> metrics;  // by name; one of each name
  std::vector<Alarm> alarms;    // what looks wrong in the state
  std::vector<std::string> layout_digests;
  std::vector<uint32_t> rank_layout;
  std::vector<std::string> nodes;
  std::vector<uint32_t> rank_node;
  std::vector<ManifestTensor> tensors;  // by name
  // Either of these is parallel to `tensors`, or empty: agents did not report it, or an earlier version saved it.
  std::vector<TensorSummary> summaries;
  std::vector<TensorHistory> histories;
  // The same of objects, by name; empty together with `histories`. An object of ranks has changed if one rank's has.
  std::vector<ObjectHistory> object_histories;
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
  // Returns the fingerprint of tensor number `tensor`; nothing if the manifest has none.
  std::optional<uint64_t> fingerprint_of(size_t tensor) const;
  // Returns the path below the job's directory: "000000000042/0001/rank00003-bin01.safetensors".
  std::string path_of(const ManifestFile& file) const;
  uint64_t total_bytes() const;

  // Computes file_offset and bytes of all shards, file_offset of all objects, and data_bytes of the files, from item
  // numbers and shapes. DATA_LOSS (MANIFEST_CORRUPT): the numbers of a file are not 0..n-1, or a file has 2^63 bytes or
  // more.
  absl::Status PlaceItems();

  bool operator==(const Manifest&) const = default;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_MANIFEST_H_
