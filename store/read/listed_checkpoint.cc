#include "store/read/listed_checkpoint.h"

#include "absl/strings/str_cat.h"
#include "common/base/time_proto.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {

v1::Checkpoint CheckpointOf(const std::string& job, const StoredAttempt& attempt) {
  v1::Checkpoint checkpoint;
  checkpoint.set_job(job);
  checkpoint.set_step(attempt.step);
  checkpoint.set_attempt(attempt.attempt);
  checkpoint.set_request_id(attempt.request_id);
  checkpoint.set_data_directory(AttemptDirectory(job, attempt.step, attempt.attempt));
  checkpoint.set_state(attempt.deleted     ? v1::Phase::DELETED
                       : attempt.committed ? v1::Phase::COMMITTED
                       : attempt.damaged   ? v1::Phase::DAMAGED
                                           : v1::Phase::ABORTED);
  if (!attempt.error.ok()) *checkpoint.mutable_error() = StatusToProto(attempt.error);
  if (!attempt.committed) return checkpoint;
  checkpoint.set_bytes(attempt.bytes);
  checkpoint.set_world_size(attempt.world_size);
  SetTimestamp(attempt.time, *checkpoint.mutable_commit_time());
  if (attempt.lineage.continues_step.has_value()) checkpoint.set_continues_step(*attempt.lineage.continues_step);
  for (const Metric& metric : attempt.metrics) {
    v1::Metric& entry = *checkpoint.add_metrics();
    entry.set_name(metric.name);
    entry.set_value(metric.value);
  }
  for (const Alarm& alarm : attempt.alarms) {
    *checkpoint.add_warnings() = StatusToProto(AlarmStatus(alarm, job, attempt.step));
  }
  return checkpoint;
}

v1::Checkpoint ListedCheckpoint(const std::string& job, const StepRecord& step, const JobLineage& lineage) {
  const StoredAttempt* attempt = step.deciding();
  v1::Checkpoint listed = attempt != nullptr ? CheckpointOf(job, *attempt) : v1::Checkpoint();
  listed.set_job(job);
  listed.set_step(step.step);
  listed.set_pinned(step.pinned);
  for (const std::string& tag : step.tags) listed.add_tags(tag);
  if (step.state() != StepRecord::State::kCommitted) {
    listed.set_state(v1::Phase::DAMAGED);
    *listed.mutable_error() = StatusToProto(step.damage());
    listed.set_unread(!step.unread().ok());
  } else if (lineage.superseded().contains(step.step)) {
    listed.set_state(v1::Phase::SUPERSEDED);
  }
  return listed;
}

}  // namespace cairn
