// Reads once, when a job is first heard of, what storage knows of it. Nothing is decided before that has come.
#ifndef CAIRN_COORDINATOR_JOB_RECOVERY_H_
#define CAIRN_COORDINATOR_JOB_RECOVERY_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/decision/job_context.h"
#include "coordinator/membership/news.h"

namespace cairn {

// Not thread-safe.
class Recovery {
 public:
  // Asks storage, unless it has answered or is asked already. After an error it is asked again, but not at once.
  void Begin(const JobContext& context);
  // Storage has answered, or failed to.
  News OnRead(const absl::Status& status, const JobContext& context);
  // Notes whether storage has stalled. The caller does this with every tick.
  News Tick(const JobContext& context);

  bool done() const { return done_; }
  bool under_way() const { return under_way_; }
  // Returns why storage could not answer when it was asked last; else OK.
  const absl::Status& error() const { return error_; }
  // STORAGE_STALLED if storage has not answered for too long; else OK.
  const absl::Status& stalled() const { return stalled_; }

 private:
  bool done_ = false;
  bool under_way_ = false;
  absl::Time begun_ = absl::InfiniteFuture();
  absl::Time next_try_ = absl::InfinitePast();
  absl::Status error_;
  absl::Status stalled_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_RECOVERY_H_
