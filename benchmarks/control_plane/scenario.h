// Says what the load generator does with a server, and what it measures.
#ifndef CAIRN_BENCHMARKS_CONTROL_PLANE_SCENARIO_H_
#define CAIRN_BENCHMARKS_CONTROL_PLANE_SCENARIO_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "benchmarks/control_plane/fleet.h"

namespace cairn {

struct ScenarioOptions {
  // It is "idle", "first-save", "save", "load", "restart" or "mixed".
  std::string name;
  // The address, the root and the job are not set.
  FleetOptions fleet;
  // The number of ranks that load; `fleet.ranks` have saved.
  int target_ranks = 0;
  int saves = 3;
  absl::Duration idle_window = absl::Seconds(20);
  absl::Duration lease = absl::Seconds(10);
  // One save or load may take this long; then the scenario says how far it came.
  absl::Duration patience = absl::Minutes(2);
  // The small job of "mixed" has so many ranks.
  int small_ranks = 64;
  // True: it runs against the empty server, which does neither "load" nor "restart".
  bool empty_server = false;
  // These are the paths of the programs.
  std::string coordinator;
  std::string empty_server_path;
  std::string generator;
  // Roots are made here.
  std::string directory = "/tmp";
};

// Runs it and prints its report. An error says that it could not be run; a save that does not commit is a result.
absl::Status RunScenario(const ScenarioOptions& options);

// The small job of "mixed", in a process of its own: asks for orders until standard input ends, and prints how long the
// answers took. `fleet` has address, root and job.
absl::Status RunProbe(const FleetOptions& fleet);

}  // namespace cairn

#endif  // CAIRN_BENCHMARKS_CONTROL_PLANE_SCENARIO_H_
