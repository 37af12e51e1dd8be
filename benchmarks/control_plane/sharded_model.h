// The state of a model that is cut over the ranks of a job, as FSDP does it.
#ifndef CAIRN_BENCHMARKS_CONTROL_PLANE_SHARDED_MODEL_H_
#define CAIRN_BENCHMARKS_CONTROL_PLANE_SHARDED_MODEL_H_

#include <cstdint>
#include <string>

namespace cairn {

struct ShardedModel {
  int tensors = 100;
  // The global shapes grow with it. It is the number of ranks that save; a load may cut the same model otherwise.
  int width = 1;
};

// Returns the serialized cairn.v1.Layout of one of `world_size` ranks. It has a band of rows of every tensor, an object
// that all ranks hold ("meta") and one that each rank has of its own ("rng"). The items of a WritePlan are the tensors,
// then these two.
std::string LayoutOf(const ShardedModel& model, int rank, int world_size);

}  // namespace cairn

#endif  // CAIRN_BENCHMARKS_CONTROL_PLANE_SHARDED_MODEL_H_
