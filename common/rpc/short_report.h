// Shortens an agent's reports: omits fields that the coordinator already knows (SynchronizeAgentRequest.base_sequence).
#ifndef CAIRN_COMMON_RPC_SHORT_REPORT_H_
#define CAIRN_COMMON_RPC_SHORT_REPORT_H_

#include <cstdint>
#include <deque>

#include "cairn/v1/agent_coordination_service.pb.h"

namespace cairn {

// The agent's side. It remembers which states the coordinator may have: the state of the last answered request, and the
// states of all requests since, because a request without an answer may have arrived all the same. A field that is
// equal in all of these states is omitted. Not thread-safe.
class ReportShortener {
 public:
  // Must be called after a registration, when the coordinator knows no state. `allowed`: it accepts short reports.
  void Begin(bool allowed);
  // Removes from a request, which has the complete state and a sequence, the fields that the coordinator knows.
  void Shorten(v1::SynchronizeAgentRequest& request);
  // Must be called when the coordinator has answered the request with this sequence.
  void OnAnswered(uint64_t sequence);

 private:
  struct Sent {
    uint64_t sequence = 0;
    v1::AgentState state;
  };

  bool allowed_ = false;
  bool answered_ = false;  // the oldest entry of `sent_` was answered
  std::deque<Sent> sent_;  // oldest first
};

// The coordinator's side: returns the complete state, from the state before (`known`) and a short report.
v1::AgentState WholeState(v1::AgentState known, const v1::AgentState& changes);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_SHORT_REPORT_H_
