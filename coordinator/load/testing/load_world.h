// Ranks that call load at random moments, with random timeouts, while trainers, agents and coordinators die and
// messages are lost.
#ifndef CAIRN_COORDINATOR_LOAD_TESTING_LOAD_WORLD_H_
#define CAIRN_COORDINATOR_LOAD_TESTING_LOAD_WORLD_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "common/status/reason.h"
#include "coordinator/load/testing/exchange_ways.h"
#include "coordinator/testing/simulation.h"
#include "coordinator/testing/test_job.h"

namespace cairn {

// Equal seeds give equal runs. See Simulation for the clock and the dice.
class LoadWorld : private Simulation {
 public:
  // Says what the ranks call. With one of the last two, all agents can use NCCL.
  enum class Calls { kLoads, kReshards, kLoadsBetweenMachines };
  LoadWorld(uint64_t seed, int ranks, Calls calls);

  // Lets a storm pass, then a calm in which all ranks must meet, then three rounds in which each rank calls once.
  // Returns the first violation, or "".
  std::string Run();

  // These count what ranks were told, so that a test sees that the storm was neither too bad nor too mild.
  int loads() const { return loads_; }
  int failures() const { return failures_; }
  int given_up() const { return given_up_; }
  int exchanges() const { return exchanges_; }  // over NCCL

 private:
  // A rank is its agent and its trainer.
  struct Rank {
    int rank = 0;
    uint64_t agent = 0;
    uint64_t epoch = 0;
    bool registered = false;
    uint64_t sequence = 0;
    uint64_t trainer = 0;  // 0: none
    // The agent tells these, which are found by trainer and number.
    std::map<std::pair<uint64_t, uint64_t>, v1::LoadState> calls;
    uint64_t number = 0;  // of the trainer's last call
    bool calling = false;
    std::string token;     // by which it was last told to read
    v1::GroupState group;  // number 0: none
    absl::Time called;
    absl::Time gives_up;
    int done = 0;    // since the calm, or the last round
    int failed = 0;  // likewise
  };

  bool stormy() const { return now_ < stormy_until_; }
  absl::Duration Delay() { return absl::Milliseconds(stormy() && Chance(0.05) ? 200 + Pick(2000) : 1 + Pick(40)); }
  void Until(absl::Time end) {
    RunUntil(end);
    now_ = std::max(now_, end);
  }

  void StartCoordinator();
  // Hands the coordinator an event, looks at what it has decided then, and lets its actions follow.
  void InCore(const std::function<void(const Moment&)>& event);

  void Execute(const CoreAction& action);
  void Tick();
  // Something dies.
  void Disturb();

  void NewAgent(Rank& rank);
  // The trainer's call is over, whatever came of it.
  void End(Rank& rank) { rank.calling = false; }
  void NewTrainer(Rank& rank);
  static void Fail(v1::LoadState& state, Reason reason, const std::string& what);
  // The trainer calls, unless it is in a call.
  void Begin(Rank& rank, absl::Duration timeout);
  // Lets the trainer do what it does now and then.
  void Train(Rank& rank);

  // Delivers one way over the network.
  void Send(const std::function<void()>& deliver);

  v1::AgentIdentity Identity(const Rank& rank) const;
  void Register(Rank& rank);
  void Synchronize(Rank& rank);
  void Obey(Rank& rank, const v1::SynchronizeAgentResponse& orders);
  void FollowGroups(Rank& rank, const v1::SynchronizeAgentResponse& orders);
  void Read(Rank& rank, std::pair<uint64_t, uint64_t> key, std::string token);
  // Returns whether all bytes have come that this rank gets in the operation.
  bool Exchanged(Rank& rank, v1::LoadState& state, const std::string& token);

  // No rank is left to wait for bytes that nobody will give it.
  void CheckTokens();

  const bool reshards_;
  const bool exchanges_bytes_;  // between ranks that share no memory, by agents that can use NCCL
  absl::Time stormy_until_;
  uint64_t next_id_ = 100;
  std::vector<Rank> ranks_;
  std::unique_ptr<TestJob> core_;
  uint64_t epoch_ = 0;
  std::vector<std::weak_ptr<const void>> holds_;  // of plans
  // The call by which a rank is in an operation, by its token and by rank.
  std::map<std::string, std::map<int, std::pair<uint64_t, uint64_t>>> readers_;
  ExchangeWays ways_;
  std::map<std::pair<std::string, int>, absl::Time> exchanging_;  // since when a rank waits, by token and rank
  absl::Time split_since_ = absl::InfiniteFuture();
  int loads_ = 0;
  int failures_ = 0;
  int given_up_ = 0;
  int exchanges_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_LOAD_TESTING_LOAD_WORLD_H_
