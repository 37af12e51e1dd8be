// Asks the coordinator what the page of `cairn serve` shows.
#ifndef CAIRN_CLI_WEB_PAGE_QUESTIONS_H_
#define CAIRN_CLI_WEB_PAGE_QUESTIONS_H_

#include <atomic>
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
  explicit PageQuestions(std::unique_ptr<CoordinatorClient> client) : client_(std::move(client)) {}

  // While storage does not answer, questions about it wait for ten seconds each. If so many wait already, further ones
  // fail at once with UNAVAILABLE (STORAGE_STALLED). So threads are left for the other questions.
  static constexpr int kMostAtStorage = 8;

  // {"now", "jobs"}: this machine's time in milliseconds since 1970, and the jobs that have agents or had some.
  absl::StatusOr<nlohmann::ordered_json> Jobs();
  // {"jobs"}: all jobs that have checkpoints too, with the times of their last commits. It asks about storage. The
  // answer may be kStoredFor old, because the coordinator looks through the whole root for it.
  absl::StatusOr<nlohmann::ordered_json> StoredJobs();
  // Returns JobToJson, in which "last_committed" is null. NOT_FOUND (JOB_NOT_FOUND): no agent is registered.
  absl::StatusOr<nlohmann::ordered_json> JobOf(const std::string& name);
  // {"checkpoints"}: the newest ones, newest first. It asks about storage.
  absl::StatusOr<nlohmann::ordered_json> Checkpoints(const std::string& name);
  // {"timelines"}: what has ended, newest first, without ranks.
  absl::StatusOr<nlohmann::ordered_json> Timelines(const std::string& name);
  // `rest`: for example "7/llm", the timeline with number 7 of the job llm.
  absl::StatusOr<nlohmann::ordered_json> TimelineOf(const std::string& rest);

  // The questions above by the names that the page uses. The result must not outlive this.
  std::map<std::string, WebSite::Question> ByName();

 private:
  static constexpr absl::Duration kStoredFor = absl::Seconds(10);

  const std::unique_ptr<CoordinatorClient> client_;
  std::atomic<int> at_storage_ = 0;
  Mutex mutex_;
  nlohmann::ordered_json stored_jobs_ ABSL_GUARDED_BY(mutex_);
  absl::Time stored_time_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace cairn::cli

#endif  // CAIRN_CLI_WEB_PAGE_QUESTIONS_H_
