// Measures what one event costs the coordinator's core, without gRPC, storage and planning, by the number of ranks.
//
//   core_benchmark [--ranks N] [--budget SECONDS]
//
// A job of so many ranks registers, declares layouts, idles, and saves twice. Every call into the core is timed by
// itself. It prints one line of JSON on standard output, and a table on standard error. If it takes longer than the
// budget, it prints the times so far, and how far it came.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "benchmarks/control_plane/core_adapter.h"
#include "benchmarks/control_plane/event_loop.h"
#include "benchmarks/control_plane/report.h"
#include "common/base/version_text.h"
#include "common/process/arguments.h"

namespace cairn {
namespace {

constexpr int kIdleRounds = 2;
constexpr int kMaxIdleEvents = 20'000;
constexpr int kTicks = 20;
// The cost of the first ranks says nothing about a full job.
constexpr double kFull = 0.9;

class SizeRun {
 public:
  SizeRun(int ranks, absl::Duration budget)
      : ranks_(ranks),
        deadline_(SteadyNow() + budget),
        core_(ranks),
        report_(absl::StrCat("core: ", ranks, " ranks")) {}

  void Run() {
    report_.Add("scenario", "core", "");
    report_.Add("ranks", ranks_, "");
    const char* reached = Events();
    report_.Add("reached", reached, "\"done\", or what the budget ended");
    AddTimes("register", register_);
    AddTimes("heartbeat", heartbeat_);
    AddTimes("report", change_);
    AddTimes("orders", orders_);
    AddTimes("tick", tick_);
    report_.Add("longest_result_us", longest_result_, "of a plan, a manifest, an outcome, handed to the core");
    report_.Print();
  }

 private:
  const char* Events() {
    for (int rank = 0; rank < ranks_; ++rank) {
      if (SteadyNow() > deadline_) return EndedAt("register", rank);
      const absl::Duration time = core_.Register(rank);
      if (rank >= kFull * ranks_) Note(register_, time);
    }
    CarryOut();
    // The layouts are wanted, come, and are planned: by two rounds all ranks know the plan.
    for (int round = 0; round < 2; ++round) {
      for (int rank = 0; rank < ranks_; ++rank) {
        if (SteadyNow() > deadline_) return EndedAt("declare", rank);
        core_.Report(rank, v1::Phase::PHASE_UNSPECIFIED, 0);
        core_.TellOrders(rank);
      }
      core_.Tick();
      CarryOut();
    }
    // The time of one event is measured in the steady state, not the first time that memory is touched.
    for (int round = 0; round < kIdleRounds; ++round) {
      core_.Pass(absl::Seconds(3));
      for (int rank = 0; rank < std::min(ranks_, kMaxIdleEvents); ++rank) {
        if (SteadyNow() > deadline_) return EndedAt("heartbeat", rank);
        Note(heartbeat_, core_.Report(rank, v1::Phase::PHASE_UNSPECIFIED, 0));
      }
      for (int rank = kMaxIdleEvents; rank < ranks_; ++rank) {
        if (SteadyNow() > deadline_) return EndedAt("heartbeat", rank);
        core_.Report(rank, v1::Phase::PHASE_UNSPECIFIED, 0);
      }
    }
    for (int i = 0; i < kTicks; ++i) {
      core_.Pass(absl::Milliseconds(100));
      Note(tick_, core_.Tick());
    }
    for (int64_t step = 1; step <= 2; ++step) {
      if (const char* ended = Save(step); ended != nullptr) return ended;
    }
    return "done";
  }

  // Each phase of each rank is a report. The last of a phase makes the job go on: that one is slow, and is the maximum.
  const char* Save(int64_t step) {
    const bool measured = step > 1;
    for (const v1::Phase::Value phase :
         {v1::Phase::PLANNING, v1::Phase::STAGED, v1::Phase::WRITING, v1::Phase::WRITTEN}) {
      core_.Pass(absl::Milliseconds(500));
      for (int rank = 0; rank < ranks_; ++rank) {
        if (SteadyNow() > deadline_) return EndedAt("save", rank);
        const absl::Duration time = core_.Report(rank, phase, step);
        if (measured) Note(change_, time);
      }
      CarryOut();
      core_.Tick();
      CarryOut();
      for (int rank = 0; rank < ranks_; ++rank) {
        if (SteadyNow() > deadline_) return EndedAt("orders", rank);
        const absl::Duration time = core_.TellOrders(rank);
        if (measured) Note(orders_, time);
      }
    }
    if (core_.ActionFor(0) != v1::Phase::COMMITTED) {
      return EndedAt(absl::StrFormat("step %d without a commit (action %d)", step, core_.ActionFor(0)), 0);
    }
    for (int rank = 0; rank < ranks_; ++rank) core_.Report(rank, v1::Phase::PHASE_UNSPECIFIED, 0);
    return nullptr;
  }

  const char* EndedAt(const std::string& what, int rank) {
    ended_ = absl::StrCat(what, " of rank ", rank);
    return ended_.c_str();
  }

  void CarryOut() { longest_result_ = std::max(longest_result_, absl::ToDoubleMicroseconds(core_.CarryOut())); }

  static void Note(std::vector<double>& times, absl::Duration time) {
    times.push_back(absl::ToDoubleMicroseconds(time));
  }

  void AddTimes(const std::string& name, const std::vector<double>& times) {
    if (times.empty()) return;
    report_.Add(name + "_p50_us", MedianOf(times), absl::StrCat(times.size(), " events"));
    report_.Add(name + "_p999_us", QuantileOf(times, 0.999), "");
    report_.Add(name + "_max_us", QuantileOf(times, 1), "");
  }

  const int ranks_;
  const absl::Time deadline_;
  CoreUnderTest core_;
  Report report_;
  std::vector<double> register_, heartbeat_, change_, orders_, tick_;
  double longest_result_ = 0;
  std::string ended_;
};

int Main(int argc, char** argv) {
  int ranks = 1000, budget = 60;
  ArgumentParser app("core_benchmark", "What one event costs the coordinator's core.", VersionText("core_benchmark"));
  app.AddOption("--ranks", ranks, "Size of the job").Between(1, 1'000'000).ShowDefault();
  app.AddOption("--budget", budget, "Seconds").Between(1, 36'000).ShowDefault();
  if (const std::optional<int> exit_status = app.Parse(argc, argv)) return *exit_status;
  SizeRun(ranks, absl::Seconds(budget)).Run();
  return 0;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return cairn::Main(argc, argv); }
