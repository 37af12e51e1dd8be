#include "coordinator/server/monitoring_service.h"

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "common/format/checkpoint_path.h"
#include "common/resources/memory.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/reactor.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"
#include "store/read/stored_jobs.h"

namespace cairn {
namespace {

// A list of jobs waits this long for storage, so that its caller, who waits 10 seconds for an answer, gets one.
constexpr absl::Duration kPatience = absl::Seconds(6);

// Returns the jobs that the coordinator has heard of, `known`, and those that storage knows. Fails if there is none,
// and storage does not tell whether it knows others.
absl::StatusOr<v1::ListJobsResponse> AllJobs(const std::vector<v1::JobSummary>& known, const JobReader::Answer& read) {
  if (!read.found.ok() && known.empty() && read.jobs.empty()) return read.found;
  std::map<std::string, v1::JobSummary> jobs;
  for (const v1::JobSummary& job : known) jobs[job.job()] = job;
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
  if (!request->stored()) {
    for (v1::JobSummary& job : dispatcher_.Jobs()) *response->add_jobs() = std::move(job);
    return FinishNow(context, absl::OkStatus());
  }
  std::vector<v1::JobSummary> jobs = dispatcher_.Jobs();
  std::vector<std::string> known;
  for (const v1::JobSummary& job : jobs) known.push_back(job.job());
  const auto scan = JobReader::MakeScan(known);
  const auto call = HeldCall::Start(kPatience, [this, scan](HeldCall&, bool) { reader_.GiveUp(scan); });
  grpc::ServerUnaryReactor* const reactor = call->reactor();
  reader_.Begin(scan, [call, response, jobs = std::move(jobs)](const JobReader::Answer& read) {
    auto made = WithMemory("to answer the call", [&] { return AllJobs(jobs, read); });
    if (!call->Claim()) return;
    if (made.ok()) response->Swap(&*made);
    call->AnswerClaimed(made.status());
  });
  return reactor;
}

}  // namespace cairn
