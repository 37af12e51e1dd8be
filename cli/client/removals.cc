#include "cli/client/removals.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/base/counted.h"
#include "cli/client/coordinator_client.h"
#include "common/base/time_proto.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::cli {

Removals RemovalsOf(const std::vector<v1::JobSummary>& jobs) {
  Removals removals;
  for (const v1::JobSummary& job : jobs) {
    removals.due += job.removals_due() - std::min(job.removals_due(), job.removals_refused());
    removals.refused += job.removals_refused();
    removals.delay = std::max(removals.delay, DurationOf(job.removal_delay()));
  }
  return removals;
}

std::string WaitingText(const Removals& removals) {
  const int64_t seconds = absl::ToInt64Seconds(absl::Ceil(removals.delay, absl::Seconds(1)));
  return absl::StrCat("waiting for the files of ", Counted(removals.due, "deleted checkpoint"), " to be removed",
                      seconds == 0 ? std::string()
                                   : absl::StrCat(", which begins in ", seconds,
                                                  "s, when no load of an earlier coordinator can read them any more"),
                      " (Ctrl-C leaves them to the next coordinator)");
}

absl::Status AwaitRemovals(const CommandContext& context, const std::function<bool()>& give_up,
                           const std::function<void(const std::string&)>& say) {
  constexpr absl::Duration kLook = absl::Milliseconds(200);
  const auto client = CoordinatorClient::Connect(context);
  absl::Status asked = client.status();
  Removals removals;
  bool waited = false;
  while (asked.ok()) {
    v1::ListJobsResponse answer;
    asked = (*client)->Call(&v1::MonitoringService::Stub::ListJobs, v1::ListJobsRequest(), &answer);
    if (!asked.ok()) break;
    removals = RemovalsOf({answer.jobs().begin(), answer.jobs().end()});
    if (removals.due == 0) break;
    if (!waited) say(WaitingText(removals));
    waited = true;
    if (give_up()) break;
    absl::SleepFor(kLook);
  }
  if (!asked.ok()) {
    return Annotate(asked, "whether files of deleted checkpoints are still there is not known",
                    {{"next", "The next coordinator of this root removes them: run the same command again."}});
  }
  const std::string left = absl::StrCat("files of ", Counted(removals.due + removals.refused, "deleted checkpoint"));
  if (removals.refused > 0) {
    return MakeError(Reason::kStorageError,
                     absl::StrCat(left, " are still there, because storage does not let them be removed"),
                     {{"next",
                       "The coordinator's log says why. Fix the cause, then run the same command again: the next "
                       "coordinator of this root removes the files."}});
  }
  if (removals.due > 0) {
    say(absl::StrCat(left, " are still there: the next coordinator of this root removes them"));
  } else if (waited) {
    say("they are removed");
  }
  return absl::OkStatus();
}

}  // namespace cairn::cli
