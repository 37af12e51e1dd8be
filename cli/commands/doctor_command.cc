#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "agent/sockets/socket_directory.h"
#include "agent/staging/huge_pages.h"
#include "agent/staging/memory_limit.h"
#include "agent/staging/shared_memory.h"
#include "cli/base/own_name.h"
#include "cli/base/terminal.h"
#include "cli/client/coordinator_client.h"
#include "cli/commands/commands.h"
#include "cli/commands/diagnosis.h"
#include "cli/commands/environment.h"
#include "cli/commands/mirror_findings.h"
#include "cli/local/run_directory.h"
#include "cli/views/timeline_view.h"
#include "common/base/clock.h"
#include "common/base/time_proto.h"
#include "common/format/checkpoint_path.h"
#include "common/process/quantity.h"
#include "common/resources/open_files.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/open/open_storage.h"
#include "store/posix/nested_root.h"
#include "store/read/check_files.h"
#include "store/read/checkpoint_store.h"
#include "store/read/stored_jobs.h"

namespace cairn::cli {
namespace {

constexpr char kNameCoordinator[] = "Add --coordinator HOST:PORT, which `cairn up` and `cairn run` print.";

struct Arguments {
  std::string root;
  std::string mirror;
  std::string job;
  std::string state_size;
  std::string grace;
};

// The size of the state to be saved, in bytes; 0 if not known.
struct StateSize {
  uint64_t all = 0;
  uint64_t of_a_rank = 0;
};

// Whether the named job exists.
struct Known {
  bool looked = false;  // the root or a coordinator was asked for it
  bool job = false;
};

// Returns the size of the job's newest checkpoint; 0 if it has none.
absl::StatusOr<StateSize> NewestOf(CheckpointStore& store, const std::string& job) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<StepRecord> steps, store.ReadCheckpoints(job));
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (step->state() != StepRecord::State::kCommitted) continue;
    for (const StoredAttempt& attempt : step->attempts) {
      if (!attempt.stands() || attempt.world_size == 0) continue;
      return StateSize{attempt.bytes, attempt.bytes / attempt.world_size};
    }
  }
  return StateSize();
}

// Returns the size that the user gives, or the size of the job's newest checkpoint. If no job is given, it takes the
// root's only job, or the one with the largest state, and adds a finding that names it.
absl::StatusOr<StateSize> SizeOf(Storage& storage, const Arguments& arguments, std::vector<Finding>& findings) {
  if (!arguments.state_size.empty()) {
    CAIRN_ASSIGN_OR_RETURN(const int64_t bytes, ParseSize(arguments.state_size));
    return StateSize{static_cast<uint64_t>(bytes), 0};
  }
  CheckpointStore store(storage);
  if (!arguments.job.empty()) return NewestOf(store, arguments.job);
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> jobs, FindJobs(storage));
  StateSize largest;
  std::string job;
  for (const std::string& each : jobs) {
    // A job that cannot be read is skipped; `cairn list` says what is wrong with it.
    const StateSize size = NewestOf(store, each).value_or(StateSize());
    if (size.all <= largest.all) continue;
    largest = size;
    job = each;
  }
  if (!job.empty()) findings.push_back(NameMeasuredJob(job, jobs.size()));
  return largest;
}

// Checks whether the newest checkpoints are valid, by their manifests and the lengths of their files.
absl::Status LookAtCheckpoints(Storage& storage, const std::string& job, std::vector<Finding>& findings) {
  CheckpointStore store(storage);
  CAIRN_ASSIGN_OR_RETURN(const std::vector<StepRecord> steps, store.ReadCheckpoints(job));
  size_t damaged = 0;
  std::optional<int64_t> valid;
  for (auto step = steps.rbegin(); step != steps.rend() && !valid.has_value(); ++step) {
    if (step->state() == StepRecord::State::kNothing) continue;
    if (store.ReadValid(job, *step).ok()) {
      valid = step->step;
    } else {
      ++damaged;
    }
  }
  if (auto finding = JudgeCheckpoints(job, damaged, valid, storage.root())) findings.push_back(*std::move(finding));
  return absl::OkStatus();
}

void Append(std::vector<Finding> more, std::vector<Finding>& findings) {
  std::move(more.begin(), more.end(), std::back_inserter(findings));
}

// What was found of the root. `storage` is null if it cannot be used.
struct Root {
  std::unique_ptr<Storage> storage;
  StateSize state;
};

Root LookAtRoot(const Arguments& arguments, Known& known, std::vector<Finding>& findings) {
  // A root in an object store is made by its first object.
  auto storage = OpenStorage(arguments.root, /*create=*/!IsDirectoryRoot(arguments.root));
  absl::Status usable = storage.status();
  if (usable.ok() && IsDirectoryRoot(arguments.root)) usable = CheckStandsAlone(arguments.root);
  if (usable.ok()) usable = (*storage)->ProbeAtomicCreate();
  findings.push_back(JudgeRoot(arguments.root, usable));
  if (findings.back().level == Finding::Level::kFault) return {};
  if (!arguments.job.empty()) {
    known.looked = true;
    known.job = (*storage)->Exists(arguments.job);
  }
  const absl::StatusOr<StateSize> size = SizeOf(**storage, arguments, findings);
  if (!size.ok()) {
    findings.push_back(
        {Finding::Level::kFault, "state", std::string(size.status().message()), NextActionOf(size.status())});
  }
  const StateSize state = size.value_or(StateSize());
  const absl::StatusOr<std::vector<std::string>> jobs =
      arguments.job.empty() ? FindJobs(**storage) : std::vector<std::string>{arguments.job};
  for (const std::string& job : jobs.value_or(std::vector<std::string>())) {
    if (const absl::Status looked = LookAtCheckpoints(**storage, job, findings); !looked.ok()) {
      findings.push_back({Finding::Level::kFault, "checkpoints", std::string(looked.message()), NextActionOf(looked)});
    }
  }
  Append(JudgeFacts((*storage)->Facts(), state.all, Clock::Real().WallNow()), findings);
  findings.push_back(JudgeMemory(ReadMemoryLimits(), state.of_a_rank));
  return {*std::move(storage), state};
}

bool KernelTellsPeers() {
  constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD, which older headers do not name
  int pair[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return false;
  int process = -1;
  socklen_t size = sizeof(process);
  const bool known = getsockopt(pair[0], SOL_SOCKET, kPeerPidfd, &process, &size) == 0;
  for (int fd : {pair[0], pair[1], process}) {
    if (fd >= 0) close(fd);
  }
  return known;
}

void LookAtMachine(const Arguments& arguments, std::vector<Finding>& findings) {
  const std::string directory = DefaultSocketDirectory(arguments.job.empty() ? "doctor" : arguments.job, 0);
  absl::Status made = PrepareSocketDirectory(directory, /*others_may_enter=*/false);
  if (made.ok()) made = SharedMemory::CheckSealing();
  findings.push_back(JudgeSockets(directory, made));
  rmdir(directory.c_str());  // the directory of a running agent is not empty, so it stays
  findings.push_back(JudgeHugePages(ReadHugePages()));
  findings.push_back(JudgePidNamespaces(KernelTellsPeers()));
  findings.push_back(JudgeOpenFiles(RaiseOpenFileLimit()));
  findings.push_back(JudgeOwnName(LookUpOwnName()));
}

absl::StatusOr<std::optional<absl::Duration>> LongestSave(CoordinatorClient& client, const std::string& job) {
  v1::ListTimelinesRequest request;
  request.set_job(job);
  request.set_summary(true);
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::Timeline> timelines, FetchTimelines(client, request));
  std::optional<absl::Duration> longest;
  for (const v1::Timeline& timeline : timelines) {
    if (timeline.kind() != v1::Timeline::SAVE || timeline.has_error()) continue;
    longest = std::max(longest.value_or(absl::ZeroDuration()), DurationOf(timeline.duration()));
  }
  return longest;
}

// Returns whether two paths are the same directory on this machine; nothing if one of them is no directory.
std::optional<bool> AreSame(const std::string& one, const std::string& other) {
  struct stat first = {}, second = {};
  if (stat(one.c_str(), &first) != 0 || stat(other.c_str(), &second) != 0) return std::nullopt;
  return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// Compares the grace period with the saves that the coordinator remembers: those of --job, or else of its only job.
absl::Status LookAtGrace(CoordinatorClient& client, const Arguments& arguments, Known& known,
                         std::vector<Finding>& findings) {
  v1::ListJobsRequest request;
  request.set_stored(true);
  v1::ListJobsResponse answer;
  CAIRN_RETURN_IF_ERROR(client.Call(&v1::MonitoringService::Stub::ListJobs, request, &answer));
  std::vector<std::string> jobs;
  for (const v1::JobSummary& job : answer.jobs()) jobs.push_back(job.job());
  std::string job = arguments.job;
  if (!job.empty()) {
    known.looked = true;
    known.job = known.job || std::find(jobs.begin(), jobs.end(), job) != jobs.end();
    if (!known.job) return absl::OkStatus();
  } else if (jobs.size() == 1) {
    job = jobs[0];
  }
  if (arguments.grace.empty()) return absl::OkStatus();
  if (job.empty()) {
    findings.push_back(GraceNotCompared(
        jobs.empty() ? "the coordinator has no job yet" : absl::StrCat("the coordinator has ", jobs.size(), " jobs"),
        jobs.empty() ? "Start the training, save once, then run this again."
                     : absl::StrCat("Add --job, one of ", absl::StrJoin(jobs, ", "), ".")));
    return absl::OkStatus();
  }
  CAIRN_ASSIGN_OR_RETURN(const absl::Duration grace, ParseDuration(arguments.grace));
  CAIRN_ASSIGN_OR_RETURN(const std::optional<absl::Duration> longest, LongestSave(client, job));
  findings.push_back(JudgeGracePeriod(grace, longest));
  return absl::OkStatus();
}

// Examines the coordinator of `context`. `found`: the user did not name it; it is the only one that runs on this
// machine. Then it is ignored if it serves another root than the given one.
absl::Status LookAtCoordinator(const CommandContext& context, const Arguments& arguments, bool found, Known& known,
                               std::vector<Finding>& findings) {
  CAIRN_ASSIGN_OR_RETURN(const auto client, CoordinatorClient::Connect(context));
  v1::Capabilities capabilities;
  const absl::Status answered =
      client->Call(&v1::CheckpointService::Stub::GetCapabilities, v1::GetCapabilitiesRequest(), &capabilities);
  const bool has_roots = answered.ok() && !arguments.root.empty() && !capabilities.root().empty();
  const std::optional<bool> same = has_roots ? AreSame(arguments.root, capabilities.root()) : std::nullopt;
  std::string left_alone;
  if (found && !answered.ok()) left_alone = "does not answer";
  if (found && has_roots && same != true) left_alone = absl::StrCat("serves another root, ", capabilities.root());
  if (!left_alone.empty()) {
    left_alone = absl::StrCat("the one that runs here, ", context.coordinator, ", ", left_alone);
    findings.push_back({Finding::Level::kNote, "coordinator", left_alone, ""});
    if (!arguments.grace.empty()) findings.push_back(GraceNotCompared("no coordinator was asked", kNameCoordinator));
    return absl::OkStatus();
  }
  findings.push_back(JudgeCoordinator(context.coordinator,
                                      answered.ok() ? absl::StatusOr<std::string>(capabilities.version()) : answered));
  if (has_roots) findings.push_back(JudgeServedRoot(arguments.root, capabilities.root(), same));
  if (answered.ok()) return LookAtGrace(*client, arguments, known, findings);
  if (!arguments.grace.empty()) {
    findings.push_back(GraceNotCompared("the coordinator does not answer", NextActionOf(answered)));
  }
  return absl::OkStatus();
}

// Examines the coordinator that the user names, or else the only one that runs on this machine.
absl::Status LookForCoordinator(CommandContext context, const Arguments& arguments, Known& known,
                                std::vector<Finding>& findings) {
  bool found = false;
  if (context.coordinator.empty()) {
    const std::vector<RunDirectory::Running> running = RunDirectory::RunningCoordinators();
    found = running.size() == 1;
    if (running.size() > 1) {
      findings.push_back({Finding::Level::kNote, "coordinator",
                          absl::StrCat(running.size(), " of them run here, and none was asked"), kNameCoordinator});
    }
    if (!found && !arguments.grace.empty()) {
      findings.push_back(GraceNotCompared(
          running.empty() ? "no coordinator was given, and none of `cairn up` or `cairn run` is found here"
                          : absl::StrCat(running.size(), " coordinators run here, and none was given"),
          kNameCoordinator));
    }
    if (!found) return absl::OkStatus();
    context.coordinator = running[0].address;
  }
  return LookAtCoordinator(context, arguments, found, known, findings);
}

void Print(const CommandContext& context, const std::vector<Finding>& findings) {
  if (context.json()) {
    nlohmann::ordered_json json = {{"findings", nlohmann::ordered_json::array()}};
    for (const Finding& finding : findings) {
      json["findings"].push_back({{"check", finding.check},
                                  {"level", LevelName(finding.level)},
                                  {"text", finding.text},
                                  {"next", finding.next}});
    }
    std::printf("%s\n", JsonText(json).c_str());
    return;
  }
  for (const Finding& finding : findings) {
    const Colour colour = finding.level == Finding::Level::kFault     ? Colour::kRed
                          : finding.level == Finding::Level::kWarning ? Colour::kYellow
                                                                      : Colour::kGreen;
    std::printf("%s %s: %s\n", Coloured(stdout, colour, absl::StrFormat("%-8s", LevelName(finding.level))).c_str(),
                finding.check.c_str(), ForTerminal(finding.text).c_str());
    if (!finding.next.empty()) std::printf("         next: %s\n", ForTerminal(finding.next).c_str());
  }
}

absl::Status Examine(const CommandContext& context, const Arguments& arguments, bool& faults) {
  if (!arguments.job.empty()) CAIRN_RETURN_IF_ERROR(CheckJobArgument(arguments.job));
  if (!arguments.grace.empty()) CAIRN_RETURN_IF_ERROR(ParseDuration(arguments.grace).status());
  std::vector<Finding> findings;
  Known known;
  Root root;
  if (arguments.root.empty()) {
    findings.push_back({Finding::Level::kNote, "storage", "not checked, because no root was given",
                        "Add --root DIR: the directory of the checkpoints."});
  } else {
    root = LookAtRoot(arguments, known, findings);
  }
  if (!arguments.mirror.empty()) {
    Append(ExamineMirror(arguments.mirror, arguments.root, root.storage.get(), root.state.all), findings);
  }
  LookAtMachine(arguments, findings);
  Append(DescribeEnvironment(arguments.root), findings);
  CAIRN_RETURN_IF_ERROR(LookForCoordinator(context, arguments, known, findings));
  // With --state-size the job need not exist yet.
  if (known.looked && !known.job && arguments.state_size.empty()) {
    findings.push_back(UnknownJob(arguments.job, arguments.root));
  }
  Print(context, findings);
  faults = std::any_of(findings.begin(), findings.end(),
                       [](const Finding& finding) { return finding.level == Finding::Level::kFault; });
  return absl::OkStatus();
}

}  // namespace

void AddDoctorCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command =
      app.AddCommand("doctor", "Checks what saves and loads need from this machine, and says what to change");
  command.AddOption("--root", arguments->root,
                    "Directory of all checkpoints: checks that it works, its free space and its clock");
  command
      .AddOption("--mirror", arguments->mirror,
                 "The coordinator's --mirror: checks the same there, whether it is the root's, and who holds it")
      .FromEnvironment("CAIRN_MIRROR");
  command
      .AddOption(
          "--job", arguments->job,
          "The job whose newest checkpoint and saves are used for comparison (default: the only job, or the largest)")
      .FromEnvironment("CAIRN_JOB");
  command.AddOption("--state-size", arguments->state_size, "Size of a future checkpoint, for example 40GiB");
  command.AddOption("--grace", arguments->grace,
                    "Grace period between SIGTERM and SIGKILL, for example 30s: compared with the duration of saves");
  command.Footer(
      "Run it where an agent or the coordinator will run, as the same user. It also asks the coordinator: the one\n"
      "of --coordinator, or the only one that `cairn up` or `cairn run` has started on this machine.\nExamples:\n"
      "  cairn doctor --root /ckpt --state-size 40GiB\n  cairn doctor --root /ckpt --mirror s3://models/llm\n  cairn "
      "doctor --root /ckpt --job llm --coordinator "
      "coordinator:7420 --grace 30s\nExit status: 0 nothing is wrong (there may be warnings), 1 a fault was found, 2 "
      "usage.");
  command.Action([arguments, &context] {
    bool faults = false;
    const absl::Status status = Examine(context, *arguments, faults);
    context.exit_status = status.ok() ? (faults ? kFailed : kDone) : ReportError(context, status);
  });
}

}  // namespace cairn::cli
