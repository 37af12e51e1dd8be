// Asks the coordinator what the page of `cairn serve` shows.
#ifndef CAIRN_CLI_WEB_PAGE_QUESTIONS_H_
#define CAIRN_CLI_WEB_PAGE_QUESTIONS_H_

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/client/coordinator_client.h"
#include "cli/web/web_site.h"
#include "common/base/mutex.h"

namespace cairn::cli {

// Every error has one more key than ErrorToJson gives: "next", what to do. Thread-safe.
class PageQuestions {
 public:
  // `live` asks what the coordinator knows without storage, `storing` what it looks up there. They are two, so that the
  // page shows what happens also while storage does not answer.
  PageQuestions(std::unique_ptr<CoordinatorClient> live, std::unique_ptr<CoordinatorClient> storing)
      : live_(std::move(live)), storing_(std::move(storing)) {}

  // {"now", "jobs"}: this machine's time, and the jobs that have agents or had some.
  absl::StatusOr<nlohmann::ordered_json> Jobs();
  // {"jobs"}: all jobs that have checkpoints too, with the times of their last commits. The answer may be
  // kStoredFor old, because the coordinator looks through the whole root for it.
  absl::StatusOr<nlohmann::ordered_json> StoredJobs();
  // Returns JobToJson, in which "last_committed" is null. NOT_FOUND (JOB_NOT_FOUND): no agent is registered.
  absl::StatusOr<nlohmann::ordered_json> JobOf(const std::string& name);
  // {"checkpoints"}: the newest ones, newest first.
  absl::StatusOr<nlohmann::ordered_json> Checkpoints(const std::string& name);
  // {"timelines"}: what has ended, newest first, without ranks.
  absl::StatusOr<nlohmann::ordered_json> Timelines(const std::string& name);
  // `rest`: for example "7/llm", the timeline with number 7 of the job llm.
  absl::StatusOr<nlohmann::ordered_json> TimelineOf(const std::string& rest);

  // The questions above by the names that the page uses. The result must not outlive this.
  std::map<std::string, WebSite::Question> ByName();

 private:
  static constexpr absl::Duration kStoredFor = absl::Seconds(10);

  Mutex live_mutex_;
  const std::unique_ptr<CoordinatorClient> live_ ABSL_GUARDED_BY(live_mutex_);
  Mutex storing_mutex_;
  const std::unique_ptr<CoordinatorClient> storing_ ABSL_GUARDED_BY(storing_mutex_);
  nlohmann::ordered_json stored_jobs_ ABSL_GUARDED_BY(storing_mutex_);
  absl::Time stored_time_ ABSL_GUARDED_BY(storing_mutex_) = absl::InfinitePast();
};

}  // namespace cairn::cli

#endif  // CAIRN_CLI_WEB_PAGE_QUESTIONS_H_
