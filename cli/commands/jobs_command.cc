#include "cli/commands/jobs_command.h"

#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/base/terminal.h"
#include "cli/client/coordinator_client.h"
#include "cli/local/run_directory.h"
#include "cli/views/jobs_view.h"
#include "common/base/clock.h"
#include "common/status/status.h"
#include "store/open/open_storage.h"
#include "store/read/checkpoint_store.h"
#include "store/read/stored_jobs.h"

namespace cairn::cli {
namespace {

struct Arguments {
  std::string root;
};

absl::StatusOr<std::vector<v1::JobSummary>> FromCoordinator(const CommandContext& context) {
  CAIRN_ASSIGN_OR_RETURN(const auto client, CoordinatorClient::Connect(context));
  v1::ListJobsRequest request;
  request.set_stored(true);
  v1::ListJobsResponse response;
  CAIRN_RETURN_IF_ERROR(client->Call(&v1::MonitoringService::Stub::ListJobs, request, &response));
  return std::vector<v1::JobSummary>(response.jobs().begin(), response.jobs().end());
}

absl::StatusOr<std::vector<v1::JobSummary>> FromStorage(const std::string& root) {
  CAIRN_ASSIGN_OR_RETURN(const auto storage, OpenStorage(root, /*create=*/false));
  CAIRN_ASSIGN_OR_RETURN(const FoundJobs found, LookForJobs(*storage));
  CheckpointStore store(*storage);
  std::map<std::string, v1::JobSummary> jobs;
  for (const std::string& name : found.names) DescribeRead(store.ReadCheckpoints(name), jobs[name]);
  for (const auto& [directory, error] : found.unlisted) DescribeRead(error, jobs[directory]);
  std::vector<v1::JobSummary> listed;
  for (auto& [name, job] : jobs) {
    job.set_job(name);
    listed.push_back(std::move(job));
  }
  return listed;
}

// Lists the jobs of each of these coordinators. If one does not answer, the others are listed all the same, and its
// error is returned.
absl::Status ListJobsOf(const CommandContext& context, const std::vector<RunDirectory::Running>& coordinators) {
  nlohmann::ordered_json json = {{"jobs", nlohmann::ordered_json::array()}};
  absl::Status failed;
  for (const RunDirectory::Running& each : coordinators) {
    CommandContext asking = context;
    asking.coordinator = each.address;
    const auto jobs = FromCoordinator(asking);
    if (!jobs.ok()) {
      failed.Update(jobs.status());
    } else if (context.json()) {
      for (const v1::JobSummary& job : *jobs) {
        json["jobs"].push_back(JobSummaryToJson(job));
        json["jobs"].back()["coordinator"] = each.address;
      }
    } else {
      std::printf("coordinator %s, root %s\n", each.address.c_str(), ForTerminal(each.root).c_str());
      JobsTable(*jobs, Clock::Real().WallNow()).Print(stdout);
    }
  }
  if (context.json()) std::printf("%s\n", JsonText(json).c_str());
  return failed;
}

}  // namespace

absl::Status ListJobs(const CommandContext& context, const std::string& root) {
  if (root.empty() && context.coordinator.empty()) {
    const std::vector<RunDirectory::Running> here = RunDirectory::RunningCoordinators();
    if (here.size() > 1) return ListJobsOf(context, here);
  }
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::JobSummary> jobs,
                         root.empty() ? FromCoordinator(context) : FromStorage(root));
  if (context.json()) {
    nlohmann::ordered_json json = {{"jobs", nlohmann::ordered_json::array()}};
    for (const v1::JobSummary& job : jobs) json["jobs"].push_back(JobSummaryToJson(job));
    std::printf("%s\n", JsonText(json).c_str());
  } else if (jobs.empty()) {
    std::printf("there are no jobs\n");
  } else {
    JobsTable(jobs, Clock::Real().WallNow()).Print(stdout);
  }
  return absl::OkStatus();
}

void AddJobsCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand("jobs", "Lists the jobs of a coordinator or of a root");
  command.AddOption("--root", arguments->root, "Read this storage instead of asking a coordinator");
  command.Footer(
      "Examples:\n  cairn jobs --coordinator 127.0.0.1:7420\n  cairn jobs --root /checkpoints --format=json\n"
      "STATE is saving, loading, stopped (a trainer's process is stopped, or hangs in the kernel), training (every "
      "rank has an\nagent, and a trainer is attached), waiting (there are agents, but none of the above), or stored "
      "(there are only\ncheckpoints, no agent). With --root it is always stored. Without --coordinator and --root, all "
      "coordinators "
      "that\nthis user has started here by `cairn up` or `cairn run` are asked.");
  command.Action(
      [arguments, &context] { context.exit_status = ReportError(context, ListJobs(context, arguments->root)); });
}

}  // namespace cairn::cli
