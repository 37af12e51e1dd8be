#include "coordinator/job/recovery.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/duration_text.h"
#include "common/status/reason.h"
#include "coordinator/decision/rank_error.h"

namespace cairn {
namespace {

constexpr absl::Duration kRetry = absl::Seconds(1);
// Storage that answers with an error has so long to come back before the ranks hear of it.
constexpr absl::Duration kPatienceWithErrors = absl::Seconds(5);

}  // namespace

void Recovery::Begin(const JobContext& context) {
  if (done_ || under_way_ || context.now < next_try_) return;
  under_way_ = true;
  begun_ = std::min(begun_, context.now);
  context.Do(RecoverJob{});
}

News Recovery::OnRead(const absl::Status& status, const JobContext& context) {
  under_way_ = false;
  error_ = status;
  if (!status.ok()) {
    next_try_ = context.now + kRetry;
    context.Log(LogLevel::kWarn, "recovery_failed", {{"error", status}});
    return {};
  }
  done_ = true;
  return News::Urgent();
}

News Recovery::Tick(const JobContext& context) {
  absl::Status stalled;
  const absl::Duration silent = context.options.storage_timeout;
  const absl::Duration patience = error_.ok() ? silent : std::min(silent, kPatienceWithErrors);
  if (!done_ && context.now - begun_ >= patience) {
    stalled = MakeError(Reason::kStorageStalled,
                        absl::StrCat(context.job, ": storage has not said for ", DurationText(patience),
                                     " what the job has saved", error_.ok() ? "" : ": ", error_.message()),
                        {{"job", context.job}});
  }
  if (stalled == stalled_) return {};
  stalled_ = std::move(stalled);
  return News::Urgent();
}

}  // namespace cairn
