#include "coordinator/alarms/state_summary.h"

#include "common/base/crc32c.h"

namespace cairn {

uint64_t StateSummary::Object::Value() const {
  uint64_t value = crc32c.size();
  for (const uint32_t crc : crc32c) value = (value ^ crc) * 0x9e3779b97f4a7c15 + 1;
  return std::max<uint64_t>(value, 1);
}

StateSummary SummaryOf(const Manifest& manifest) {
  StateSummary state;
  state.step = manifest.step;
  state.attempt = manifest.attempt;
  state.line = manifest.lineage.line;
  state.world_size = manifest.world_size;
  state.plan_digest = manifest.plan_digest;
  state.tensors.reserve(manifest.tensors.size());
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const ManifestTensor& tensor = manifest.tensors[i];
    state.tensors.push_back({tensor.name, tensor.dtype, tensor.global_shape, manifest.summaries[i],
                             manifest.histories.empty() ? TensorHistory() : manifest.histories[i], tensor.first_shard,
                             tensor.shard_count});
  }
  state.shards.reserve(manifest.shards.size());
  uint64_t bytes = 0;  // most shards are as large as the one before
  uint32_t zeros = 0;
  for (const ManifestShard& shard : manifest.shards) {
    if (shard.bytes != bytes) {
      bytes = shard.bytes;
      zeros = ExtendCrc32cByZeros(0, bytes);
    }
    state.shards.push_back({shard.crc32c, manifest.files[shard.file].rank, bytes > 0 && shard.crc32c == zeros});
  }
  for (const ManifestObject& object : manifest.objects) {
    if (state.objects.empty() || state.objects.back().name != object.name) {
      const size_t number = state.objects.size();
      state.objects.push_back({object.name, object.rank.has_value(), {}, {}});
      if (number < manifest.object_histories.size()) state.objects.back().history = manifest.object_histories[number];
    }
    state.objects.back().crc32c.push_back(object.crc32c);
  }
  for (const Alarm& alarm : manifest.alarms) state.alarms.push_back(alarm.kind);
  return state;
}

}  // namespace cairn
