#include "store/read/listed_checkpoint.h"

#include "absl/strings/str_cat.h"
#include "common/base/time_proto.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {

v1::Checkpoint ListedCheckpoint(const std::string& job, const StepRecord& step, const JobLineage& lineage) {
  v1::Checkpoint listed;
  listed.set_job(job);
  listed.set_step(step.step);
  listed.set_pinned(step.pinned);
  for (const std::string& tag : step.tags) listed.add_tags(tag);
  const StoredAttempt* attempt = step.deciding();
  if (attempt != nullptr) {
    listed.set_attempt(attempt->attempt);
    listed.set_request_id(attempt->request_id);
    listed.set_data_directory(AttemptDirectory(job, step.step, attempt->attempt));
  }
  if (step.state() != StepRecord::State::kCommitted) {
    listed.set_state(v1::Phase::DAMAGED);
    *listed.mutable_error() = StatusToProto(step.damage());
    listed.set_unread(!step.unread().ok());
    return listed;
  }
  listed.set_state(lineage.superseded().contains(step.step) ? v1::Phase::SUPERSEDED : v1::Phase::COMMITTED);
  if (attempt->lineage.continues_step.has_value()) listed.set_continues_step(*attempt->lineage.continues_step);
  for (const Metric& metric : attempt->metrics) {
    v1::Metric& entry = *listed.add_metrics();
    entry.set_name(metric.name);
    entry.set_value(metric.value);
  }
  if (!attempt->replica_mismatch.empty()) {
    *listed.mutable_warning() = StatusToProto(MakeError(Reason::kReplicaMismatch, attempt->replica_mismatch,
                                                        {{"job", job}, {"step", absl::StrCat(step.step)}}));
  }
  listed.set_bytes(attempt->bytes);
  listed.set_world_size(attempt->world_size);
  SetTimestamp(attempt->time, *listed.mutable_commit_time());
  return listed;
}

}  // namespace cairn
