// Makes seeded models and parallel layouts of them, which are small enough to be checked element by element.
#ifndef CAIRN_PLANNER_TESTING_MODEL_H_
#define CAIRN_PLANNER_TESTING_MODEL_H_

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "planner/layout/layout_description.h"

namespace cairn::testing {

using Random = std::mt19937_64;

inline int64_t Below(Random& random, int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); }

struct Model {
  struct Tensor {
    std::string name;
    DType dtype;
    Shape shape;
    int layer;       // of pipelines
    int expert;      // -1: it belongs to no expert
    bool optimizer;  // it is a state that ZeRO cuts
  };
  std::vector<Tensor> tensors;
  std::vector<std::string> objects;
  std::vector<std::string> per_rank_objects;
  int layers = 1;
  bool tied = false;  // "head" stands for the first tensor
};

// Makes tensors of every dtype and 0 to 5 dimensions, now and then one with an empty axis or of several MiB. A tensor
// is kept only if its bit of `keep` is set; shrinking drops the others.
Model MakeModel(uint64_t seed, uint64_t keep);

// Returns the layout of each rank under a strategy that the seed draws: TP × PP (with virtual stages) × EP × DP (CP) ×
// ZeRO-1/2/3, with uneven cuts, empty shards, replicas, flat buffers across parameters, or irregular tilings.
std::vector<LayoutDescription> MakeLayouts(const Model& model, uint64_t seed);

// Returns the bytes of a whole tensor, which differ for each tensor and element.
std::vector<std::byte> Content(const Model::Tensor& tensor);
std::map<std::string, std::vector<std::byte>> ContentsOf(const Model& model);
// Returns the bytes of a shard, gathered element by element.
std::vector<std::byte> ContentOf(const ShardDescription& shard, const Shape& global_shape, int element,
                                 const std::vector<std::byte>& whole);

}  // namespace cairn::testing

#endif  // CAIRN_PLANNER_TESTING_MODEL_H_
