#include "coordinator/server/monitoring_service.h"

#include "absl/strings/numbers.h"
#include "common/rpc/endpoint.h"
#include "common/status/reason.h"
#include "common/storage/checkpoint_path.h"

namespace cairn {

grpc::ServerUnaryReactor* MonitoringService::ListTimelines(grpc::CallbackServerContext* context,
                                                           const v1::ListTimelinesRequest* request,
                                                           v1::ListTimelinesResponse* response) {
  absl::Status status = CheckToken(*context, token_);
  if (status.ok()) status = CheckJobName(request->job());
  if (status.ok() && request->has_step()) status = CheckStep(request->step());
  uint64_t before = 0;
  if (status.ok() && !request->page_token().empty() && !absl::SimpleAtoi(request->page_token(), &before)) {
    status = MakeError(Reason::kBadRequest, "the page token was not given by this coordinator");
  }
  if (!status.ok()) return FinishNow(context, status);
  // What it makes has a bound, and waits for nothing.
  *response = operations_.List(*request, before);
  return FinishNow(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* MonitoringService::ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest*,
                                                      v1::ListJobsResponse* response) {
  if (absl::Status status = CheckToken(*context, token_); !status.ok()) return FinishNow(context, status);
  for (v1::JobSummary& job : dispatcher_.Jobs()) *response->add_jobs() = std::move(job);
  return FinishNow(context, absl::OkStatus());
}

}  // namespace cairn
