#include "benchmarks/control_plane/scenario.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "benchmarks/control_plane/report.h"
#include "benchmarks/control_plane/server_under_test.h"
#include "common/base/mutex.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// The messages after an outcome belong to its save: each agent says that it has heard it.
constexpr absl::Duration kSettle = absl::Milliseconds(500);
// A layout of sharded_model.h has so many objects.
constexpr int kObjects = 2;
constexpr double kKiB = 1024;
// Kernel priorities: the crowd of "mixed" gives way to the job whose orders are timed.
constexpr int kCrowdNiceness = 5;
constexpr absl::Duration kProbeEnd = absl::Seconds(20);

absl::Duration OwnCpuTime() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

const Traffic& Sum(const std::vector<const Traffic*>& parts, Traffic& sum) {
  for (const Traffic* part : parts) {
    sum.calls += part->calls;
    sum.up_bytes += part->up_bytes;
    sum.down_bytes += part->down_bytes;
  }
  return sum;
}

class Runner {
 public:
  explicit Runner(const ScenarioOptions& options)
      : options_(options),
        server_name_(options.empty_server ? "empty server" : "cairn-coordinator"),
        report_(absl::StrCat(options.name, ": ", options.fleet.ranks, " ranks, ", options.fleet.model.tensors,
                             " tensors, ", server_name_)) {}

  absl::Status Run() {
    CAIRN_ASSIGN_OR_RETURN(
        server_, options_.empty_server
                     ? ServerUnderTest::StartEmptyServer(options_.empty_server_path,
                                                         options_.fleet.model.tensors + kObjects, options_.lease)
                     : ServerUnderTest::StartCoordinator(options_.coordinator, options_.directory, options_.lease));
    report_.Add("scenario", options_.name, "");
    report_.Add("server", server_name_, "");
    report_.Add("ranks", options_.fleet.ranks, "");
    report_.Add("tensors", options_.fleet.model.tensors, "that each rank declares");
    CAIRN_ASSIGN_OR_RETURN(fleet_, Fleet::Make(loop_, FleetFor(options_.fleet)));
    CAIRN_RETURN_IF_ERROR(RunNamed());
    report_.Add("generator_cpu_s", OwnCpuTime(), "of this process, in the whole run");
    fleet_.reset();
    report_.Print();
    return absl::OkStatus();
  }

 private:
  absl::Status RunNamed() {
    if (options_.empty_server && (options_.name == "load" || options_.name == "restart")) {
      return MakeError(Reason::kBadRequest, absl::StrCat("the empty server has no scenario ", options_.name));
    }
    if (options_.name == "idle") return Idle();
    if (options_.name == "first-save") return FirstSave();
    if (options_.name == "save") return Saves();
    if (options_.name == "load") return Load();
    if (options_.name == "restart") return Restart();
    if (options_.name == "mixed") return Mixed();
    return MakeError(Reason::kBadRequest, absl::StrCat("there is no scenario ", options_.name));
  }

  FleetOptions FleetFor(FleetOptions fleet) const {
    fleet.address = server_->address();
    fleet.root = server_->root();
    return fleet;
  }

  absl::Duration Cpu() const { return server_->process().CpuTime(); }

  // From nothing to the first commit: trainers call save as soon as they have an agent.
  bool Begin() {
    begun_ = SteadyNow();
    fleet_->Start();
    fleet_->Save(++step_);
    const bool committed = fleet_->WaitOutcome(options_.patience);
    loop_.RunFor(kSettle);
    return committed;
  }

  void AddOutcome(bool committed) {
    report_.Add("committed", committed ? 1 : 0, "1 if every living rank heard of the commit");
    if (committed) return;
    const absl::Status error = fleet_->error();
    const auto reason = ReasonOf(error);
    report_.Add(
        "error", reason ? InfoOf(*reason).name : std::string_view("NO_OUTCOME"),
        error.ok() ? absl::StrCat("after ", absl::FormatDuration(options_.patience)) : std::string(error.message()));
  }

  void AddMilestone(Milestone milestone, const std::string& name, const std::string& text) {
    const MilestoneTimes& times = fleet_->times(milestone);
    if (times.ranks == 0) return;
    report_.Add(name + "_s", times.last - begun_, absl::StrCat(text, " (", times.ranks, " ranks)"));
  }

  void AddTraffic(double saves) {
    const AgentCounters& counters = fleet_->counters();
    Traffic all;
    Sum({&counters.registrations, &counters.synchronizations, &counters.uploads, &counters.parts}, all);
    const double each = saves * fleet_->size();
    report_.Add("calls_per_rank", static_cast<double>(all.calls) / each, "RPCs");
    report_.Add("interrupted_per_rank", static_cast<double>(counters.interrupted) / each,
                "of these: held calls that a newer state of the agent ended");
    report_.Add("up_bytes_per_rank", static_cast<double>(all.up_bytes) / each, "requests, without HTTP/2 headers");
    report_.Add("down_bytes_per_rank", static_cast<double>(all.down_bytes) / each, "answers");
    AddTrouble();
  }

  void AddTrouble() {
    const AgentCounters& counters = fleet_->counters();
    report_.Add("longest_silence_s", counters.longest_silence, "that an agent saw, from answer to answer");
    report_.Add("second_registrations", static_cast<double>(counters.second_registrations), "");
    uint64_t errors = 0;
    std::vector<std::string> kinds;
    for (const auto& [kind, count] : counters.errors) {
      errors += count;
      kinds.push_back(absl::StrCat(count, " ", kind));
    }
    report_.Add("failed_calls", static_cast<double>(errors), absl::StrJoin(kinds, ", "));
  }

  void AddMemory() {
    report_.Add("resident_mib", static_cast<double>(server_->process().Resident()) / kKiB / kKiB, "of the server");
    report_.Add("peak_resident_mib", static_cast<double>(server_->process().PeakResident()) / kKiB / kKiB, "");
  }

  absl::Status Idle() {
    AddOutcome(Begin());
    loop_.RunFor(2 * kSettle);
    fleet_->StartCounting();
    const absl::Duration before = Cpu();
    const absl::Time begun = SteadyNow();
    loop_.RunFor(options_.idle_window);
    const absl::Duration window = SteadyNow() - begun;
    const absl::Duration cpu = Cpu() - before;
    report_.Add("window_s", window, "");
    report_.Add("cpu_s", cpu, "of the server, in the window");
    report_.Add("core_percent", 100 * absl::FDivDuration(cpu, window), "of one core");
    report_.Add("cpu_us_per_heartbeat",
                absl::ToDoubleMicroseconds(cpu) /
                    std::max<double>(1, static_cast<double>(fleet_->counters().synchronizations.calls)),
                "");
    AddTraffic(1);
    AddMemory();
    return absl::OkStatus();
  }

  absl::Status FirstSave() {
    const bool committed = Begin();
    AddOutcome(committed);
    AddMilestone(Milestone::kRegistered, "registered", "last rank registered");
    AddMilestone(Milestone::kUploaded, "uploaded", "last layout uploaded");
    AddMilestone(Milestone::kPart, "parts", "last rank had its part of the plan");
    AddMilestone(Milestone::kStaged, "staged", "last rank staged");
    AddMilestone(Milestone::kWriteOrder, "write_order", "last rank told to write");
    AddMilestone(Milestone::kWritten, "written", "last rank had written");
    AddMilestone(committed ? Milestone::kCommitted : Milestone::kAborted, "outcome", "last rank heard the outcome");
    report_.Add("cpu_s", Cpu(), "of the server, from its start");
    report_.Add("layouts_uploaded", static_cast<double>(fleet_->counters().layouts_uploaded), "");
    AddTraffic(1);
    AddMemory();
    return absl::OkStatus();
  }

  absl::Status Saves() {
    if (!Begin()) {
      AddOutcome(false);
      AddTrouble();
      return absl::OkStatus();
    }
    std::vector<double> cpu, begun_to_write, written_to_outcome, all;
    bool committed = true;
    loop_.RunFor(2 * kSettle);
    fleet_->StartCounting();
    // Milestones are of one save, the counters of all.
    for (int i = 0; i < options_.saves && committed; ++i) {
      fleet_->ForgetMilestones();
      const absl::Duration before = Cpu();
      const absl::Time begun = SteadyNow();
      fleet_->Save(++step_);
      committed = fleet_->WaitOutcome(options_.patience);
      loop_.RunFor(kSettle);
      cpu.push_back(absl::ToDoubleSeconds(Cpu() - before));
      const auto last = [&](Milestone milestone) { return fleet_->times(milestone).last; };
      const absl::Time outcome = last(committed ? Milestone::kCommitted : Milestone::kAborted);
      begun_to_write.push_back(absl::ToDoubleSeconds(last(Milestone::kWriteOrder) - last(Milestone::kBegun)));
      written_to_outcome.push_back(absl::ToDoubleSeconds(outcome - last(Milestone::kWritten)));
      all.push_back(absl::ToDoubleSeconds(outcome - begun));
    }
    AddOutcome(committed);
    const auto saves = static_cast<double>(cpu.size());
    report_.Add("saves", saves, "unchanged; medians follow");
    report_.Add("cpu_s", MedianOf(cpu), "of the server, for a save");
    report_.Add("cpu_us_per_rank", 1e6 * MedianOf(cpu) / fleet_->size(), "");
    report_.Add("begun_to_write_s", MedianOf(begun_to_write), "last BEGUN to last order to write");
    report_.Add("written_to_outcome_s", MedianOf(written_to_outcome), "last WRITTEN to last outcome heard");
    report_.Add("save_s", MedianOf(all), "first call of save to last outcome heard");
    AddTraffic(saves);
    AddMemory();
    return absl::OkStatus();
  }

  absl::Status Load() {
    if (!Begin()) {
      AddOutcome(false);
      return absl::OkStatus();
    }
    if (!fleet_->Leave(options_.patience)) {
      return MakeError(Reason::kInternal, "the ranks that saved could not unregister");
    }
    fleet_.reset();
    FleetOptions target = FleetFor(options_.fleet);
    target.ranks = options_.target_ranks;
    target.slow = target.dead = 0;
    CAIRN_ASSIGN_OR_RETURN(fleet_, Fleet::Make(loop_, target));
    const absl::Duration before = Cpu();
    fleet_->Start();
    fleet_->WaitFor(Milestone::kRegistered, fleet_->size(), options_.patience);
    loop_.RunFor(kSettle);
    fleet_->StartCounting();
    const absl::Duration begun_cpu = Cpu();
    begun_ = SteadyNow();
    fleet_->Load(1, step_);
    const bool loaded = fleet_->WaitFor(Milestone::kLoaded, fleet_->size(), options_.patience);
    loop_.RunFor(kSettle);
    report_.Add("target_ranks", fleet_->size(), "");
    report_.Add("loaded", loaded ? 1 : 0, "1 if every rank heard that all are done");
    if (!loaded) {
      const absl::Status error = fleet_->error();
      report_.Add("error", std::string(error.message()), "");
    }
    AddMilestone(Milestone::kUploaded, "uploaded", "last layout uploaded");
    AddMilestone(Milestone::kReadOrder, "read_order", "last rank told to read");
    AddMilestone(Milestone::kReadPart, "parts", "last rank had its part of the plan");
    AddMilestone(Milestone::kLoaded, "done", "last rank heard that all are done");
    report_.Add("cpu_s", Cpu() - begun_cpu, "of the server, for the load");
    report_.Add("register_cpu_s", begun_cpu - before, "of the server, for the registration of the new ranks");
    const AgentCounters& counters = fleet_->counters();
    report_.Add("order_bytes_per_rank", static_cast<double>(counters.synchronizations.down_bytes) / fleet_->size(),
                "answers to heartbeats: orders and peers");
    report_.Add("part_bytes_per_rank", static_cast<double>(counters.parts.down_bytes) / fleet_->size(), "read plans");
    AddTraffic(1);
    AddMemory();
    return absl::OkStatus();
  }

  absl::Status Restart() {
    if (!Begin()) {
      AddOutcome(false);
      return absl::OkStatus();
    }
    loop_.RunFor(2 * kSettle);
    fleet_->StartCounting();
    begun_ = SteadyNow();
    fleet_->Save(++step_);
    fleet_->WaitFor(Milestone::kWritten, fleet_->living() / 2, options_.patience);
    const int written = fleet_->times(Milestone::kWritten).ranks;
    const absl::Time killed = SteadyNow();
    CAIRN_RETURN_IF_ERROR(server_->Restart());
    const absl::Time started = SteadyNow();
    const bool committed = fleet_->WaitOutcome(options_.patience);
    loop_.RunFor(kSettle);
    AddOutcome(committed);
    const AgentCounters& counters = fleet_->counters();
    report_.Add("written_when_killed", written, "ranks");
    report_.Add("down_s", started - killed, "from the kill to the address of the next coordinator");
    const MilestoneTimes& registered = fleet_->times(Milestone::kRegistered);
    report_.Add("registered_again", registered.ranks, "each rank once is right");
    if (registered.ranks > 0) report_.Add("all_back_s", registered.last - started, "last registration");
    if (committed) {
      report_.Add("outcome_s", fleet_->times(Milestone::kCommitted).last - started, "last outcome heard");
    }
    report_.Add("uploaded_twice", static_cast<double>(counters.layouts_uploaded), "layouts that were there before");
    report_.Add("cpu_s", Cpu(), "of the second coordinator");
    AddTrouble();
    AddMemory();
    return absl::OkStatus();
  }

  absl::Status Mixed() {
    CAIRN_ASSIGN_OR_RETURN(ChildProcess probe, ChildProcess::Start({options_.generator, "probe", "--ranks",
                                                                    absl::StrCat(options_.small_ranks), "--address",
                                                                    server_->address(), "--root", server_->root()},
                                                                   ""));
    CAIRN_RETURN_IF_ERROR(probe.ReadLine(options_.patience).status());  // it has begun
    if (nice(kCrowdNiceness) < 0) std::fprintf(stderr, "the crowd keeps its priority\n");
    const bool committed = Begin();
    AddOutcome(committed);
    probe.CloseInput();
    CAIRN_ASSIGN_OR_RETURN(const std::string times, probe.ReadLine(kProbeEnd));
    double count = 0, p50 = 0, p99 = 0, most = 0;
    if (std::sscanf(times.c_str(), "%lf %lf %lf %lf", &count, &p50, &p99, &most) != 4) {
      return MakeError(Reason::kInternal, absl::StrCat("the small job says ", times));
    }
    report_.Add("small_job_orders", count, absl::StrCat("answers that ", options_.small_ranks, " ranks asked for"));
    report_.Add("order_p50_ms", p50, "from request to orders, during the large job's first save");
    report_.Add("order_p99_ms", p99, "");
    report_.Add("order_max_ms", most, "");
    AddMilestone(Milestone::kUploaded, "uploaded", "last layout of the large job uploaded");
    AddMilestone(Milestone::kWriteOrder, "write_order", "last rank told to write");
    report_.Add("cpu_s", Cpu(), "of the server, from its start");
    AddTrouble();
    return absl::OkStatus();
  }

  const ScenarioOptions& options_;
  const std::string server_name_;
  Report report_;
  EventLoop loop_;
  std::unique_ptr<ServerUnderTest> server_;
  std::unique_ptr<Fleet> fleet_;
  absl::Time begun_;
  int64_t step_ = 0;
};

}  // namespace

absl::Status RunScenario(const ScenarioOptions& options) { return Runner(options).Run(); }

absl::Status RunProbe(const FleetOptions& options) {
  Mutex mutex;
  std::vector<double> times;
  FleetOptions asking = options;
  asking.answered = [&](absl::Duration time) {
    MutexLock lock(mutex);
    times.push_back(absl::ToDoubleMilliseconds(time));
  };
  EventLoop loop;
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<Fleet> fleet, Fleet::Make(loop, asking));
  fleet->Start();
  if (!fleet->WaitFor(Milestone::kPart, fleet->size(), absl::Minutes(1))) {
    return MakeError(Reason::kInternal, "the small job has no plan after a minute");
  }
  {
    MutexLock lock(mutex);
    times.clear();
  }
  std::printf("begun\n");
  std::fflush(stdout);
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  loop.RunUntil([&] { return poll(&input, 1, 0) != 0; }, absl::Hours(1));
  MutexLock lock(mutex);
  std::printf("%zu %.3f %.3f %.3f\n", times.size(), MedianOf(times), QuantileOf(times, 0.99), QuantileOf(times, 1));
  std::fflush(stdout);
  return absl::OkStatus();
}

}  // namespace cairn
