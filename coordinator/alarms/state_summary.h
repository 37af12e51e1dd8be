// What alarms look at in a checkpoint: which tensors, shards and objects there are, and what is kept of them beside
// their bytes. It takes about 200 bytes for a tensor and 12 for a shard.
#ifndef CAIRN_COORDINATOR_ALARMS_STATE_SUMMARY_H_
#define CAIRN_COORDINATOR_ALARMS_STATE_SUMMARY_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/format/manifest.h"

namespace cairn {

// A value type.
struct StateSummary {
  struct Tensor {
    std::string name;
    DType dtype = DType::kUnspecified;
    Shape shape;
    TensorSummary summary;
    TensorHistory history;
    uint32_t first_shard = 0;
    uint32_t shard_count = 0;

    bool SameKind(const Tensor& other) const { return dtype == other.dtype && shape == other.shape; }
    bool SameBytes(const Tensor& other) const {
      return SameKind(other) && summary.fingerprint_parts == other.summary.fingerprint_parts;
    }
  };
  struct Shard {
    uint32_t crc32c = 0;
    int32_t rank = 0;    // which wrote it
    bool zeros = false;  // all its elements are; of a manifest alone, all without a sign
  };
  // All entries of one name.
  struct Object {
    std::string name;
    bool per_rank = false;
    std::vector<uint32_t> crc32c;  // by rank, or one
    ObjectHistory history;

    // Returns a number, never 0, that is the same for the same bytes of all ranks.
    uint64_t Value() const;
  };

  int64_t step = 0;
  uint32_t attempt = 0;
  uint64_t line = 0;
  uint32_t world_size = 0;
  std::string plan_digest;
  std::vector<Tensor> tensors;  // by name
  std::vector<Shard> shards;
  std::vector<Object> objects;      // by name
  std::vector<std::string> alarms;  // the kinds that were raised

  bool Raised(std::string_view kind) const { return std::find(alarms.begin(), alarms.end(), kind) != alarms.end(); }
};

// The histories are empty if the manifest has none. `manifest` must have summaries.
StateSummary SummaryOf(const Manifest& manifest);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_ALARMS_STATE_SUMMARY_H_
