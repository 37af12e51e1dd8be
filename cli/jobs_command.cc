#include "cli/jobs_command.h"

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/coordinator_client.h"
#include "cli/jobs_view.h"
#include "cli/terminal.h"
#include "common/base/clock.h"
#include "common/status/status.h"
#include "common/storage/checkpoint_store.h"
#include "common/storage/stored_jobs.h"

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

// `unread`: by job, why its steps cannot be read.
absl::StatusOr<std::vector<v1::JobSummary>> FromStorage(const std::string& root,
                                                        std::map<std::string, absl::Status>& unread) {
  CAIRN_ASSIGN_OR_RETURN(const auto storage, PosixStorage::Open(root, false));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> names, FindJobs(*storage));
  CheckpointStore store(*storage);
  std::vector<v1::JobSummary> jobs;
  for (const std::string& name : names) {
    v1::JobSummary& job = jobs.emplace_back();
    job.set_job(name);
    // If one job cannot be read, what is known of the others is worth telling all the same.
    const auto steps = store.ReadCheckpoints(name);
    if (steps.ok()) {
      DescribeStored(*steps, job);
    } else {
      unread.emplace(name, steps.status());
    }
  }
  return jobs;
}

absl::Status Jobs(const CommandContext& context, const Arguments& arguments) {
  std::map<std::string, absl::Status> unread;
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::JobSummary> jobs,
                         arguments.root.empty() ? FromCoordinator(context) : FromStorage(arguments.root, unread));
  if (context.json()) {
    nlohmann::ordered_json json = {{"jobs", nlohmann::ordered_json::array()}};
    for (const v1::JobSummary& job : jobs) json["jobs"].push_back(JobSummaryToJson(job));
    std::printf("%s\n", json.dump(2).c_str());
  } else if (jobs.empty()) {
    std::printf("there are no jobs\n");
  } else {
    JobsTable(jobs, Clock::Real().WallNow()).Print(stdout);
  }
  for (const auto& [job, error] : unread) {
    std::fprintf(stderr, "%s %s: %s\n", Coloured(stderr, Colour::kYellow, "warning:").c_str(), job.c_str(),
                 std::string(error.message()).c_str());
  }
  return unread.empty() ? absl::OkStatus() : unread.begin()->second;
}

}  // namespace

void AddJobsCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand("jobs", "Lists the jobs of a coordinator or of a root");
  command.AddOption("--root", arguments->root, "Read this storage instead of asking a coordinator");
  command.Footer(
      "Examples:\n  cairn jobs --coordinator 127.0.0.1:7420\n  cairn jobs --root /checkpoints --format=json\n"
      "STATE is saving, loading, training (all agents and a trainer are there), waiting (some agents are there), or "
      "stored:\nno agent is there, and only the checkpoints are. With --root it is always stored.");
  command.Action([arguments, &context] { context.exit_status = ReportError(context, Jobs(context, *arguments)); });
}

}  // namespace cairn::cli
