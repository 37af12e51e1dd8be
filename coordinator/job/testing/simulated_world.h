// A job whose saves meet every kind of fault: agents, trainers, people, a network that delays, drops, duplicates and
// reorders, storage that fails, processes that crash, freeze and come back, and coordinators that are replaced while
// their last actions are still on the way.
#ifndef CAIRN_COORDINATOR_JOB_TESTING_SIMULATED_WORLD_H_
#define CAIRN_COORDINATOR_JOB_TESTING_SIMULATED_WORLD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "coordinator/decision/listening_clock.h"
#include "coordinator/job/testing/protocol_invariants.h"
#include "coordinator/job/testing/save_invariants.h"
#include "coordinator/job/testing/simulated_agent.h"
#include "coordinator/job/testing/simulated_storage.h"
#include "coordinator/testing/simulation.h"
#include "coordinator/testing/test_job.h"

namespace cairn {

// Names what is wrong on purpose, to show that the invariants notice.
enum class PlantedFault {
  kNothing,
  kOutcomeOverwritten,  // storage lets a later outcome take the place of the first
  kWrittenTooEarly,     // agents report files that they have not written
  kDoubtConcealed,      // a put whose outcome is unknown is reported as one that had no effect
  kTokenWithheld,       // ranks whose shards move by the plan get no token for it
  kTokenForAll,         // and ranks get one whose shards do not move
  kOvertakenTaken,      // a report that was overtaken is taken for the newest
  kFilesStay,           // storage says that it has removed files, and has not
};

// Equal seeds give equal runs. See Simulation for the clock and the dice.
class SimulatedWorld : private Simulation {
 public:
  SimulatedWorld(uint64_t seed, int ranks, PlantedFault planted);

  // Runs for `calm` after `stormy`, and returns the first violation, or "". In the storm everything fails now and then;
  // in the calm nothing does, so what was under way must end.
  std::string Run(absl::Duration stormy, absl::Duration calm);

  // Counts what has happened, so that a test sees that the storm was neither too bad nor too mild.
  struct Tally {
    int commits = 0;     // steps
    int replaced = 0;    // commits that took the place of another one
    int aborts = 0;      // that a rank was told of
    int agreements = 0;  // of ranks to save at one step
    int doubts = 0;      // manifests of which the coordinator does not know whether they stand
    int stalls = 0;      // that a rank was told of
    int deletions = 0;
  };
  Tally tally() const;

 private:
  using Answer = std::function<void(Job&, const Moment&)>;

  bool stormy() const { return now_ < stormy_until_; }
  absl::Duration Delay();
  void Check(const std::string& violation) {
    if (!violation.empty()) Violation(violation);
  }
  void Restart(SimulatedAgent& agent);

  // These are of the coordinator. Its generation tells the results of a dead one from those of the living.
  void StartCoordinator();
  // Returns when the coordinator runs next: now, if nothing stops it.
  absl::Time CoordinatorRuns() const;
  Moment Now();
  void InCore(const std::function<void(const Moment&)>& event);
  void Tick();

  // These are of storage. Actions that a dead coordinator had on the way still happen, but nobody hears of them.
  absl::Duration StorageDelay();
  void Execute(uint64_t generation, const CoreAction& action);
  Answer Reserve(const ReserveAttempt& reserve, const absl::Status& failure, bool orphaned);
  Answer Put(const PutOutcome& put, const absl::Status& failure);
  Answer Remove(const RemoveFiles& remove);
  Answer Change(const ChangeSteps& change, const absl::Status& failure, bool orphaned);
  StoredAttempt PutInStorage(const PutOutcome& put);

  // These are of agents and trainers.
  void Send(std::function<void()> deliver);
  void Synchronize(SimulatedAgent& agent);
  void Register(SimulatedAgent& agent);
  void Obey(SimulatedAgent& agent, const v1::SynchronizeAgentResponse& orders);
  void Obey(SimulatedAgent& agent, const v1::SaveOrder& order);
  void Move(SimulatedAgent& agent, int64_t step, v1::Phase::Value from, v1::Phase::Value to);
  void Write(SimulatedAgent& agent, v1::SaveState& save);
  void Train(SimulatedAgent& agent);

  // People ask for saves, and delete checkpoints.
  void Ask();
  void Delete();

  // Crashes and freezes processes.
  void Disturb();
  // After the calm nothing hangs, and nothing is left over.
  void CheckQuiet();
  void CheckRequests(const Moment& moment);

  const PlantedFault planted_;
  SimulatedStorage storage_;
  SaveInvariants invariants_;
  std::unique_ptr<ProtocolInvariants> protocol_;  // of the coordinator
  int plan_variant_ = 0;                          // coordinators that were started with other flags plan otherwise
  absl::Time stormy_until_;
  uint64_t next_id_ = 100;

  std::vector<SimulatedAgent> agents_;
  std::unique_ptr<TestJob> core_;
  ListeningClock listening_;
  uint64_t epoch_ = 0;
  uint64_t generation_ = 0;
  absl::Time coordinator_frozen_until_ = absl::InfinitePast();
  absl::Time coordinator_throttled_until_ = absl::InfinitePast();  // it runs for a part of each second
  absl::Time outage_until_ = absl::InfinitePast();                 // of storage

  std::map<std::string, uint64_t> asked_;  // the epoch in which a request was taken, by its id
  int never_ = 0;                          // actions of storage that hang for ever
  Tally tally_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_TESTING_SIMULATED_WORLD_H_
