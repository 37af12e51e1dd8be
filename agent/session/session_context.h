// The parts of one session share a context: who it is, what it knows of its coordinator, and what it wants done.
#ifndef CAIRN_AGENT_SESSION_SESSION_CONTEXT_H_
#define CAIRN_AGENT_SESSION_SESSION_CONTEXT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "agent/session/action.h"
#include "agent/session/link_trouble.h"
#include "common/status/status_proto.h"

namespace cairn {

struct SessionOptions {
  std::string job;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint64_t incarnation = 0;
  uint64_t memory_budget = 0;
  uint64_t round_bytes = 0;
  // Loads may copy from the slab what it holds of the last committed save.
  bool slab_loads = true;
};

// The session owns it; saves, loads, plans and slab refer to it. Not thread-safe.
struct SessionContext {
  explicit SessionContext(SessionOptions given) : options(std::move(given)), trouble(options.rank) {}

  // Something has changed that the coordinator should hear of at once (not by mere progress).
  void Changed() { ++version; }
  void Do(Action action) { actions.push_back(std::move(action)); }

  std::vector<uint32_t> OtherRanks() const {
    std::vector<uint32_t> ranks;
    for (uint32_t rank = 0; rank < options.world_size; ++rank) {
      if (rank != options.rank) ranks.push_back(rank);
    }
    return ranks;
  }

  // Makes an answer that there is none yet, with what keeps the agent from its coordinator.
  template <typename Response>
  void SetPending(Response& response) const {
    response.set_pending(true);
    if (!trouble.status().ok()) *response.mutable_stalled() = StatusToProto(trouble.status());
  }

  const SessionOptions options;
  LinkTrouble trouble;
  bool registered = false;
  uint64_t coordinator_epoch = 0;  // the highest heard of
  // To be done since the shell took them last, in order.
  std::vector<Action> actions;
  uint64_t version = 1;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_SESSION_CONTEXT_H_
