// Tells by their names which tensors are weights, and which ones an optimizer keeps for a weight.
#ifndef CAIRN_COORDINATOR_ALARMS_TENSOR_ROLES_H_
#define CAIRN_COORDINATOR_ALARMS_TENSOR_ROLES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/alarms/state_summary.h"

namespace cairn {

// Returns true for floating-point numbers of which there are statistics.
bool IsFloat(DType dtype);

struct TensorRole {
  enum class Kind {
    kWeight,  // a tensor of floating-point numbers that is not the optimizer's
    kMoment,  // a moment or momentum of an optimizer
    kStep,    // an optimizer's count of steps for a weight
    kOther,
  };
  Kind kind = Kind::kOther;
  // The number of the weight that a moment or step belongs to; -1 if the names do not say.
  int32_t weight = -1;
  // Set for a moment or step: which one it is, such as "exp_avg"; a constant of the program.
  std::string_view key;
};

// Returns true for a moment that is made of squares or magnitudes, and so has no negative elements.
bool IsSquared(std::string_view key);

// Returns the name of a moment or step without what tells it from the others that one optimizer keeps for the weight.
std::string OwnerOf(const std::string& name, std::string_view key);

// What changes with the weights although no optimizer trains it: an average of weights ("ema"), or what normalizing
// layers count ("running_mean"). Pure names decide.
enum class Follower { kNone, kAverage, kStatistic };
Follower FollowedBy(const std::string& name);

// Returns true for the name of what normalizing layers count batches in.
bool CountsBatches(const std::string& name);

// Returns the roles by tensor. Of several weights whose names end alike, that of the "model" or "module" is meant; by
// an "outer_optimizer", that of "outer". The names are those that torch's optimizers give to their state ("exp_avg"),
// with the weight's name before or behind, as state dicts of torch, Megatron and Cairn have them. Pure names decide, so
// an unknown optimizer's state is kOther, and nothing is said of it.
std::vector<TensorRole> RolesOf(const std::vector<StateSummary::Tensor>& tensors);

// Returns by tensor whether it is a weight that has a moment.
std::vector<bool> TrainedWeights(const std::vector<TensorRole>& roles);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_ALARMS_TENSOR_ROLES_H_
