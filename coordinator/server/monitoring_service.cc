#include "coordinator/server/monitoring_service.h"

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "common/format/checkpoint_path.h"
#include "common/rpc/endpoint.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"
#include "store/read/stored_jobs.h"

namespace cairn {
namespace {

// A list of jobs waits this long for storage, so that its caller, who waits 10 seconds for an answer, gets one.
constexpr absl::Duration kPatience = absl::Seconds(6);

}  // namespace

MonitoringService::MonitoringService(Dispatcher& dispatcher, const OperationLog& operations, Storage& storage,
                                     CheckpointStore& checkpoints)
    : dispatcher_(dispatcher),
      operations_(operations),
      reader_({[&dispatcher](std::function<void()> work) { dispatcher.InBackground(std::move(work)); },
               [&storage](const std::string& directory) { return ListJobDirectory(storage, directory); },
               [&checkpoints](const std::string& job) { return checkpoints.ReadCheckpoints(job); }}) {}

grpc::ServerUnaryReactor* MonitoringService::ListTimelines(grpc::CallbackServerContext* context,
                                                           const v1::ListTimelinesRequest* request,
                                                           v1::ListTimelinesResponse* response) {
  absl::Status status = CheckJobName(request->job());
  if (status.ok() && request->has_step()) status = CheckStep(request->step());
  uint64_t before = 0;
  if (status.ok() && !request->page_token().empty() && !absl::SimpleAtoi(request->page_token(), &before)) {
    status = MakeError(Reason::kBadRequest, "the page token was not given by this coordinator");
  }
  if (!status.ok()) return FinishNow(context, status);
  // The answer has a bound, and is made without waiting.
  *response = operations_.List(*request, before);
  return FinishNow(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* MonitoringService::ListJobs(grpc::CallbackServerContext* context,
                                                      const v1::ListJobsRequest* request,
                                                      v1::ListJobsResponse* response) {
  if (request->stored()) {
    return dispatcher_.OnWorker(
        *this, *request, response,
        [](MonitoringService& self, const v1::ListJobsRequest&) -> absl::StatusOr<v1::ListJobsResponse> {
          return self.AllJobs();
        });
  }
  for (v1::JobSummary& job : dispatcher_.Jobs()) *response->add_jobs() = std::move(job);
  return FinishNow(context, absl::OkStatus());
}

absl::StatusOr<v1::ListJobsResponse> MonitoringService::AllJobs() {
  std::map<std::string, v1::JobSummary> jobs;
  for (v1::JobSummary& job : dispatcher_.Jobs()) jobs[job.job()] = std::move(job);
  std::vector<std::string> known;
  for (const auto& [name, job] : jobs) known.push_back(name);
  const JobReader::Answer read = reader_.ReadAll(known, kPatience);
  if (!read.found.ok() && jobs.empty()) return read.found;
  for (const auto& [name, steps] : read.jobs) DescribeRead(steps, jobs[name]);
  v1::ListJobsResponse response;
  for (auto& [name, job] : jobs) {
    job.set_job(name);
    // There may be other jobs, which nobody knows of.
    if (!read.found.ok() && !job.has_error()) *job.mutable_error() = StatusToProto(read.found);
    *response.add_jobs() = std::move(job);
  }
  return response;
}

}  // namespace cairn
