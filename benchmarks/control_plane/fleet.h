// Runs all thin agents of a job.
#ifndef CAIRN_BENCHMARKS_CONTROL_PLANE_FLEET_H_
#define CAIRN_BENCHMARKS_CONTROL_PLANE_FLEET_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "benchmarks/control_plane/event_loop.h"
#include "benchmarks/control_plane/sharded_model.h"
#include "benchmarks/control_plane/thin_agent.h"
#include "common/rpc/token_source.h"
#include "store/posix/posix_storage.h"

namespace cairn {

struct FleetOptions {
  std::string address;
  // It is empty for a server without storage.
  std::string root;
  std::string job = "crowd";
  int ranks = 64;
  ShardedModel model;
  // Connections that the agents share; 0 for one for each 64 agents.
  int connections = 0;
  // Agents begin, and trainers call save or load, within this time of each other.
  absl::Duration start_spread = absl::Seconds(1);
  absl::Duration call_spread = absl::Milliseconds(200);
  // Each agent takes from half to one and a half of these times.
  absl::Duration stage_time = absl::Milliseconds(50);
  absl::Duration write_time = absl::Milliseconds(200);
  absl::Duration read_time = absl::Milliseconds(200);
  // The last so many ranks: they take `slow_time` to stage and as long to write; the ones before them die when they
  // are told to write.
  int slow = 0;
  absl::Duration slow_time = absl::Seconds(3);
  int dead = 0;
  // See ThinAgentOptions.
  absl::Duration ask_every;
  std::function<void(absl::Duration)> answered;
};

// Says how many ranks have come to a milestone, and when the first and the last of them did.
struct MilestoneTimes {
  int ranks = 0;
  absl::Time first = absl::InfinitePast();
  absl::Time last = absl::InfinitePast();
};

// It is used in the thread of the loop.
class Fleet {
 public:
  // Fails as opening the root does.
  static absl::StatusOr<std::unique_ptr<Fleet>> Make(EventLoop& loop, FleetOptions options);
  // Waits for the calls under way.
  ~Fleet();

  int size() const { return options_.ranks; }
  // Those that are not to die.
  int living() const { return options_.ranks - options_.dead; }
  void Start();
  void Save(int64_t step);
  void Load(uint64_t number, std::optional<int64_t> step);
  // Gives all ranks back, and waits until that is done.
  bool Leave(absl::Duration timeout);

  // Waits until `ranks` have come to it since the last StartCounting.
  bool WaitFor(Milestone milestone, int ranks, absl::Duration timeout);
  // Waits until all that live have an outcome; true if it is the commit everywhere.
  bool WaitOutcome(absl::Duration timeout);

  // Forgets milestones and counters, for what follows.
  void StartCounting();
  void ForgetMilestones();
  const MilestoneTimes& times(Milestone milestone) { return times_[milestone]; }
  const AgentCounters& counters() const { return surroundings_.counters; }
  // The error of one of the saves or loads that failed; OK if none did.
  absl::Status error() const;

 private:
  Fleet(EventLoop& loop, FleetOptions options, std::unique_ptr<PosixStorage> storage,
        std::shared_ptr<TokenSource> tokens);
  absl::Duration Within(absl::Duration spread);

  EventLoop& loop_;
  const FleetOptions options_;
  const std::unique_ptr<PosixStorage> storage_;
  const std::shared_ptr<TokenSource> tokens_;
  AgentSurroundings surroundings_;
  std::map<Milestone, MilestoneTimes> times_;
  std::mt19937 random_;
  std::vector<std::unique_ptr<ThinAgent>> agents_;
};

}  // namespace cairn

#endif  // CAIRN_BENCHMARKS_CONTROL_PLANE_FLEET_H_
