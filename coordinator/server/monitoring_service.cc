#include "coordinator/server/monitoring_service.h"

#include <map>
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
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> stored, FindJobs(storage_));
  std::map<std::string, v1::JobSummary> jobs;
  for (const std::string& job : stored) jobs[job].set_job(job);
  for (v1::JobSummary& job : dispatcher_.Jobs()) jobs[job.job()] = std::move(job);
  v1::ListJobsResponse response;
  for (auto& [name, job] : jobs) {
    // If one job cannot be read, what is known of the others is worth telling all the same.
    if (const auto steps = checkpoints_.ReadCheckpoints(name); steps.ok()) {
      DescribeStored(*steps, job);
    } else {
      *job.mutable_error() = StatusToProto(steps.status());
    }
    *response.add_jobs() = std::move(job);
  }
  return response;
}

}  // namespace cairn
