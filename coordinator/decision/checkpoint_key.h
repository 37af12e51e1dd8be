// Names the checkpoint that a call of people is about.
#ifndef CAIRN_COORDINATOR_DECISION_CHECKPOINT_KEY_H_
#define CAIRN_COORDINATOR_DECISION_CHECKPOINT_KEY_H_

#include <cstdint>
#include <optional>
#include <string>

namespace cairn {

// Names the checkpoint by its step, else by its request, else the latest committed one.
struct CheckpointKey {
  std::optional<int64_t> step;
  std::string request_id;

  bool by_request() const { return !step.has_value() && !request_id.empty(); }
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_DECISION_CHECKPOINT_KEY_H_
