// Runs thousands of thin agents against a real coordinator, and measures what its control plane costs.
//
//   load_generator SCENARIO --ranks N [--tensors T] [--empty-server] ...
//
// It prints one line of JSON on standard output, and a table on standard error. README.md says what the scenarios are,
// and what one machine shows.
#include <cstdio>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "benchmarks/control_plane/scenario.h"
#include "common/base/version_text.h"
#include "common/process/arguments.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

// Each rank of the small job asks this often.
constexpr absl::Duration kAskEvery = absl::Milliseconds(200);

int Main(int argc, char** argv) {
  ScenarioOptions options;
  FleetOptions& fleet = options.fleet;
  int tensors = 100, window = 20, lease = 10, patience = 120, stage_ms = 50, write_ms = 200, from = 0;
  std::string address, root;
  ArgumentParser app("load_generator", "Thin agents that speak with a real coordinator, and what it costs.",
                     VersionText("load_generator"));
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    return app.AddOption(name, value, text).ShowDefault();
  };
  app.AddOption("SCENARIO", options.name, "What happens")
      .OneOf({"idle", "first-save", "save", "load", "restart", "mixed", "probe"})
      .Required();
  add("--ranks", fleet.ranks, "Ranks of the job").Between(1, 100'000);
  add("--from", from, "Of load: ranks that save, instead of --ranks; 0 for --ranks").Between(0, 100'000);
  add("--to", options.target_ranks, "Of load: ranks that load; 0 for three quarters of those that saved")
      .Between(0, 100'000);
  add("--tensors", tensors, "Tensors of which each rank holds a part").Between(1, 10'000);
  add("--connections", fleet.connections, "Connections that the agents share; 0 for one for each 64")
      .Between(0, 100'000);
  add("--slow", fleet.slow, "Ranks that take seconds to stage and to write").Between(0, 100'000);
  add("--dead", fleet.dead, "Ranks that die when they are told to write").Between(0, 100'000);
  add("--saves", options.saves, "Of save: unchanged saves to measure").Between(1, 1000);
  add("--window", window, "Of idle: seconds").Between(1, 3600);
  add("--lease", lease, "Seconds").Between(1, 3600);
  add("--patience", patience, "Seconds that a save or load is waited for").Between(1, 3600);
  add("--stage-ms", stage_ms, "How long staging takes, half to one and a half of it").Between(0, 60'000);
  add("--write-ms", write_ms, "The same for writing, and for reading").Between(0, 60'000);
  app.AddFlag("--empty-server", options.empty_server,
              "Against the server that only holds calls (not load, not restart)");
  add("--coordinator", options.coordinator, "cairn-coordinator; empty for the one of this build");
  add("--directory", options.directory, "Where the checkpoint root is made, and removed again");
  add("--address", address, "Of probe: a coordinator that runs");
  add("--root", root, "Of probe: its root");
  app.Footer(
      "Examples:\n"
      "  load_generator save --ranks 1000\n"
      "  load_generator idle --ranks 1000 --empty-server\n"
      "  load_generator load --from 512 --to 384 --tensors 300\n"
      "Exit status: 0 measured (also a save that did not commit), 1 failed, 2 usage.");
  if (const std::optional<int> exit_status = app.Parse(argc, argv)) return *exit_status;
  if (from > 0) fleet.ranks = from;
  if (options.target_ranks == 0) options.target_ranks = std::max(1, fleet.ranks * 3 / 4);
  fleet.model = {tensors, fleet.ranks};
  fleet.stage_time = absl::Milliseconds(stage_ms);
  fleet.write_time = fleet.read_time = absl::Milliseconds(write_ms);
  options.idle_window = absl::Seconds(window);
  options.lease = absl::Seconds(lease);
  options.patience = absl::Seconds(patience);
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  options.generator = self.string();
  options.empty_server_path = (self.parent_path() / "empty_server").string();
  if (options.coordinator.empty()) {
    options.coordinator = (self.parent_path() / "../../coordinator/cairn-coordinator").lexically_normal().string();
  }
  const absl::Status status = WithMemory("to generate load", [&] {
    if (options.name != "probe") return RunScenario(options);
    FleetOptions small = fleet;
    small.address = address;
    small.root = root;
    small.job = "small";
    small.ask_every = kAskEvery;
    return RunProbe(small);
  });
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return cairn::Main(argc, argv); }
