#include "cli/web/page_questions.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/views/checkpoint_view.h"
#include "cli/views/job_view.h"
#include "cli/views/jobs_view.h"
#include "cli/views/timeline_view.h"
#include "common/base/clock.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"

namespace cairn::cli {
namespace {

using Json = nlohmann::ordered_json;

// The maximum number of checkpoints of a job on the page: the newest ones.
constexpr size_t kCheckpointsShown = 200;

// Adds to an error of a view, or to null, what to do next.
void TellNext(Json& json, const google::rpc::Status& error) {
  if (!json.is_null()) json["next"] = NextActionOf(StatusFromProto(error));
}

Json SummariesToJson(const v1::ListJobsResponse& response) {
  Json jobs = Json::array();
  for (const v1::JobSummary& job : response.jobs()) {
    TellNext(jobs.emplace_back(JobSummaryToJson(job))["error"], job.error());
  }
  return jobs;
}

// Counts a question about storage while it lives.
class AtStorage {
 public:
  explicit AtStorage(std::atomic<int>& count) : count_(count), number_(count.fetch_add(1) + 1) {}
  ~AtStorage() { count_.fetch_sub(1); }
  AtStorage(const AtStorage&) = delete;
  AtStorage& operator=(const AtStorage&) = delete;

  absl::Status Check() const {
    if (number_ <= PageQuestions::kMostAtStorage) return absl::OkStatus();
    return MakeError(Reason::kStorageStalled, absl::StrCat("the page's other ", PageQuestions::kMostAtStorage,
                                                           " questions wait for it already"));
  }

 private:
  std::atomic<int>& count_;
  const int number_;
};

}  // namespace

absl::StatusOr<Json> PageQuestions::Jobs() {
  v1::ListJobsResponse response;
  CAIRN_RETURN_IF_ERROR(client_->Call(&v1::MonitoringService::Stub::ListJobs, v1::ListJobsRequest(), &response));
  return Json{{"now", absl::ToUnixMillis(Clock::Real().WallNow())}, {"jobs", SummariesToJson(response)}};
}

absl::StatusOr<Json> PageQuestions::StoredJobs() {
  const absl::Time now = Clock::Real().SteadyNow();
  {
    MutexLock lock(mutex_);
    if (now - stored_time_ <= kStoredFor) return Json{{"jobs", stored_jobs_}};
  }
  const AtStorage asking(at_storage_);
  CAIRN_RETURN_IF_ERROR(asking.Check());
  v1::ListJobsRequest request;
  request.set_stored(true);
  v1::ListJobsResponse response;
  CAIRN_RETURN_IF_ERROR(client_->Call(&v1::MonitoringService::Stub::ListJobs, request, &response));
  Json jobs = SummariesToJson(response);
  MutexLock lock(mutex_);
  stored_jobs_ = jobs;
  stored_time_ = now;
  return Json{{"jobs", std::move(jobs)}};
}

absl::StatusOr<Json> PageQuestions::JobOf(const std::string& name) {
  CAIRN_RETURN_IF_ERROR(CheckJobName(name));
  v1::GetJobRequest request;
  request.set_job(name);
  v1::Job job;
  CAIRN_RETURN_IF_ERROR(client_->Call(&v1::CheckpointService::Stub::GetJob, request, &job));
  Json json = JobToJson(job, std::nullopt);
  TellNext(json["error"], job.checkpoint().error());
  for (int i = 0; i < job.loads_size(); ++i) TellNext(json["loads"][i]["error"], job.loads(i).error());
  return json;
}

absl::StatusOr<Json> PageQuestions::Checkpoints(const std::string& name) {
  CAIRN_RETURN_IF_ERROR(CheckJobName(name));
  const AtStorage asking(at_storage_);
  CAIRN_RETURN_IF_ERROR(asking.Check());
  v1::ListCheckpointsRequest request;
  request.set_job(name);
  std::vector<v1::Checkpoint> listed, only_there;
  Json mirror;
  do {
    v1::ListCheckpointsResponse response;
    CAIRN_RETURN_IF_ERROR(client_->Call(&v1::CheckpointService::Stub::ListCheckpoints, request, &response));
    listed.insert(listed.end(), response.checkpoints().begin(), response.checkpoints().end());
    only_there.assign(response.mirror_only_checkpoints().begin(), response.mirror_only_checkpoints().end());
    if (response.has_mirror()) {
      mirror = MirrorToJson(response.mirror());
      TellNext(mirror["error"], response.mirror().error());
    }
    if (listed.size() > kCheckpointsShown) listed.erase(listed.begin(), listed.end() - kCheckpointsShown);
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  listed.insert(listed.end(), only_there.begin(), only_there.end());
  std::ranges::stable_sort(listed, std::less<int64_t>(), [](const v1::Checkpoint& each) { return each.step(); });
  if (listed.size() > kCheckpointsShown) listed.erase(listed.begin(), listed.end() - kCheckpointsShown);
  Json checkpoints = Json::array();
  for (auto each = listed.rbegin(); each != listed.rend(); ++each) {
    Json& entry = checkpoints.emplace_back(ListedToJson(*each));
    if (entry.contains("error")) TellNext(entry["error"], each->error());
    for (int i = 0; i < each->warnings_size(); ++i) {
      TellNext(entry["warnings"][static_cast<size_t>(i)], each->warnings(i));
    }
    if (each->mirror().has_error()) TellNext(entry["mirror"]["error"], each->mirror().error());
  }
  return Json{{"checkpoints", std::move(checkpoints)}, {"mirror", std::move(mirror)}};
}

absl::StatusOr<Json> PageQuestions::Timelines(const std::string& name) {
  CAIRN_RETURN_IF_ERROR(CheckJobName(name));
  v1::ListTimelinesRequest request;
  request.set_job(name);
  request.set_summary(true);
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::Timeline> listed, FetchTimelines(*client_, request));
  Json timelines = Json::array();
  for (const v1::Timeline& timeline : listed) {
    TellNext(timelines.emplace_back(TimelineToJson(timeline))["error"], timeline.error());
  }
  return Json{{"timelines", std::move(timelines)}};
}

absl::StatusOr<Json> PageQuestions::TimelineOf(const std::string& rest) {
  const size_t slash = std::min(rest.find('/'), rest.size());
  const std::string name = rest.substr(std::min(rest.size(), slash + 1));
  uint64_t id = 0;
  if (!absl::SimpleAtoi(rest.substr(0, slash), &id) || id == 0) {
    return MakeError(Reason::kBadRequest, "a timeline is named by its number and its job");
  }
  CAIRN_RETURN_IF_ERROR(CheckJobName(name));
  v1::ListTimelinesRequest request;
  request.set_job(name);
  request.set_id(id);
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::Timeline> listed, FetchTimelines(*client_, request));
  if (listed.empty()) {
    return MakeError(Reason::kNotCommitted,
                     absl::StrCat("the coordinator has no timeline ", id, " of ", name, " any more"), {{"job", name}});
  }
  Json json = TimelineToJson(listed.front());
  TellNext(json["error"], listed.front().error());
  return json;
}

std::map<std::string, WebSite::Question> PageQuestions::ByName() {
  return {{"jobs", [this](const std::string&) { return Jobs(); }},
          {"stored_jobs", [this](const std::string&) { return StoredJobs(); }},
          {"job", [this](const std::string& job) { return JobOf(job); }},
          {"checkpoints", [this](const std::string& job) { return Checkpoints(job); }},
          {"timelines", [this](const std::string& job) { return Timelines(job); }},
          {"timeline", [this](const std::string& rest) { return TimelineOf(rest); }}};
}

}  // namespace cairn::cli
