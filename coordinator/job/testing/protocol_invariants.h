// Checks what must hold of the messages between agents and one coordinator, and of the actions that it asks for, in
// simulations of saves.
#ifndef CAIRN_COORDINATOR_JOB_TESTING_PROTOCOL_INVARIANTS_H_
#define CAIRN_COORDINATOR_JOB_TESTING_PROTOCOL_INVARIANTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "common/process/log.h"
#include "coordinator/decision/core_action.h"
#include "coordinator/job/testing/simulated_agent.h"

namespace cairn {

// What one coordinator has heard and said; the next one gets another of these. Each question returns what is violated,
// in words, or "" if nothing is. Not thread-safe.
class ProtocolInvariants {
 public:
  // By every plan of the world a shard moves from one of these ranks to the other, and they alone get its token.
  static constexpr int kGivesShards = 0;
  static constexpr int kTakesShards = 1;
  static std::string TokenOf(const std::string& plan_digest) { return "token of " + plan_digest; }

  ProtocolInvariants(absl::Duration lease, absl::Time started) : lease_(lease), started_(started) {}

  // The coordinator has registered this process of a rank's agent.
  void Registered(int rank, uint64_t incarnation);
  // The coordinator has taken a report and has made these orders. Only the registered process of a rank may report, a
  // report that was overtaken changes nothing, and the token of a plan goes to the ranks whose shards move by it.
  std::string AfterReport(const v1::SynchronizeAgentRequest& report, const v1::SynchronizeAgentResponse& orders,
                          absl::Time now);
  // Takes in a line of the coordinator's log, which says how its saves go on.
  void Logged(const LogEvent& event, absl::Time now);
  // The coordinator asks for an action. Files go when nobody writes them any more, an attempt is ended as one that
  // nobody came back with only after agents had the time to come back, steps are committed in the order in which they
  // began, and each rank's result is its own.
  std::string Before(const CoreAction& action, const std::vector<SimulatedAgent>& agents, absl::Time now) const;

 private:
  struct Heard {
    uint64_t incarnation = 0;
    uint64_t sequence = 0;
    absl::Time at = absl::InfinitePast();
    std::vector<int64_t> steps;  // of the saves in the newest report
    bool again = false;          // it has registered again: perhaps the coordinator had lost it, with what it had said
  };
  struct Running {
    int64_t step = 0;
    absl::Time aborting = absl::InfiniteFuture();
  };

  std::string BeforeRemove(const RemoveFiles& remove, const std::vector<SimulatedAgent>& agents, absl::Time now) const;
  std::string BeforePut(const PutOutcome& put, const std::vector<SimulatedAgent>& agents, absl::Time now) const;

  const absl::Duration lease_;
  const absl::Time started_;
  std::map<int, Heard> heard_;    // by rank
  std::vector<Running> running_;  // in the order in which they began
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_TESTING_PROTOCOL_INVARIANTS_H_
