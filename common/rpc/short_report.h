// Reports of an agent that leave out what its coordinator knows already (SynchronizeAgentRequest.base_sequence).
#ifndef CAIRN_COMMON_RPC_SHORT_REPORT_H_
#define CAIRN_COMMON_RPC_SHORT_REPORT_H_

#include <cstdint>
#include <deque>

#include "cairn/v1/agent_coordination_service.pb.h"

namespace cairn {

// Is the agent's side, and knows which of its states the coordinator may hold. That is the state of the last request
// that was answered, or of any that was sent since, because a call that was given up may have come all the same. A
// field that is the same in all of these is left out. Not thread-safe.
class ReportShortener {
 public:
  // The agent has registered, so the coordinator holds nothing of it that counts. `allowed`: it takes short reports.
  void Begin(bool allowed);
  // Leaves out of a request, which has the whole state and a sequence, what the coordinator knows.
  void Shorten(v1::SynchronizeAgentRequest& request);
  // The coordinator has answered the request with this sequence.
  void OnAnswered(uint64_t sequence);

 private:
  struct Sent {
    uint64_t sequence = 0;
    v1::AgentState state;
  };

  bool allowed_ = false;
  bool answered_ = false;  // the oldest of `sent_` was
  std::deque<Sent> sent_;  // oldest first
};

// The coordinator's side: the whole state, if `known` is one that the agent may be taken to have sent before.
v1::AgentState WholeState(v1::AgentState known, const v1::AgentState& changes);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_SHORT_REPORT_H_
