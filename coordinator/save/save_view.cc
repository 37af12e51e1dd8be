// What people see of a save.
#include <algorithm>

#include "common/rpc/status_proto.h"
#include "common/storage/checkpoint_path.h"
#include "coordinator/save/save.h"

namespace cairn {

v1::Checkpoint Save::View(const Context& context) const {
  v1::Checkpoint view;
  view.set_job(context.job);
  view.set_step(step_);
  view.set_attempt(attempt_);
  view.set_revision(revision_);
  view.set_coordinator_epoch(context.options.coordinator_epoch);
  if (!request_ids_.empty()) view.set_request_id(request_ids_.front());
  if (attempt_ > 0) view.set_data_directory(AttemptDirectory(context.job, step_, attempt_));
  view.set_world_size(static_cast<uint32_t>(ranks_.size()));
  view.set_bytes(plan_.bytes);
  switch (phase_) {
    case Phase::kCollecting:
      view.set_state(v1::Checkpoint::COLLECTING);
      break;
    case Phase::kWriting:
      view.set_state(v1::Checkpoint::WRITING);
      break;
    case Phase::kCommitting:
      view.set_state(v1::Checkpoint::COMMITTING);
      break;
    case Phase::kCommitted:
      view.set_state(v1::Checkpoint::COMMITTED);
      break;
    case Phase::kAborting:
      view.set_state(v1::Checkpoint::ABORTING);
      break;
    case Phase::kAborted:
      view.set_state(v1::Checkpoint::ABORTED);
      break;
  }
  if (phase_ == Phase::kAborting || phase_ == Phase::kAborted) *view.mutable_error() = StatusToProto(error_);
  if (phase_ == Phase::kCommitted) {
    view.set_bytes(verdict_.bytes);
    view.set_world_size(verdict_.world_size);
    const int64_t nanos = absl::ToUnixNanos(verdict_.commit_time);
    view.mutable_commit_time()->set_seconds(nanos / 1'000'000'000);
    view.mutable_commit_time()->set_nanos(static_cast<int32_t>(nanos % 1'000'000'000));
  }
  const int64_t created = absl::ToUnixNanos(created_wall_);
  view.mutable_create_time()->set_seconds(created / 1'000'000'000);
  view.mutable_create_time()->set_nanos(static_cast<int32_t>(created % 1'000'000'000));
  if (phase_ == Phase::kCommitted) return view;
  const std::vector<int> awaited = Awaited(context);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const int index = static_cast<int>(i);
    const Rank& rank = ranks_[i];
    v1::RankProgress& progress = *view.add_rank();
    progress.set_rank(static_cast<uint32_t>(index));
    progress.set_phase(PhaseOf(rank));
    progress.set_bytes_done(rank.state.bytes_done());
    progress.set_bytes_total(rank.state.bytes_total());
    const Member* member = context.members.Find(index);
    if (member != nullptr) progress.set_node(member->node);
    const absl::Duration idle = context.now - ProgressOf(index, rank, context);
    progress.mutable_idle()->set_seconds(absl::ToInt64Seconds(idle));
    progress.mutable_idle()->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(idle) % 1'000'000'000));
    const bool is_awaited = std::binary_search(awaited.begin(), awaited.end(), index);
    const bool late = !ended() && is_awaited &&
                      (member == nullptr || idle > context.options.phase_timeout / 2 ||
                       context.now - member->heard > context.options.lease_ttl / 2);
    progress.set_late(late);
    if (late) progress.set_note(DetailOf(index, rank, context));
  }
  return view;
}

}  // namespace cairn
