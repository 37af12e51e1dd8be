// Tells agents of a save.
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/time_proto.h"
#include "common/format/checkpoint_path.h"
#include "common/status/status_proto.h"
#include "coordinator/save/save.h"

namespace cairn {

bool Save::TookPart(const Member& member, const v1::SaveState& state) const {
  // An agent counts the calls of all its trainers, so what it says of a call is about that call, whoever is its trainer
  // by now.
  return replies_.Gave(member, state) || (HasBegunBy(member) && state.call() <= rank(member.rank).state.call());
}

bool Save::Answers(const Member& member, const v1::SaveState& state) const {
  if (!ended() || TookPart(member, state) || replies_.Holds(member, state)) return true;
  const SaveRank& known = rank(member.rank);
  return static_cast<size_t>(member.rank) < ranks_.size() && attempt_ > 0 && state.attempt() == attempt_ &&
         (!known.begun || state.call() <= known.state.call());
}

bool Save::HasNumber(int rank, uint64_t number) const {
  const SaveRank& caller = ranks_[static_cast<size_t>(rank)];
  return caller.begun && caller.state.save() == number;
}

void Save::TellOutcome(v1::SaveOrder& order) const {
  if (phase_ == v1::Phase::COMMITTED) {
    order.set_phase(v1::Phase::COMMITTED);
    order.set_bytes(outcome_.bytes);
    order.set_world_size(outcome_.world_size);
    for (const absl::Status& warning : warnings_) *order.add_warnings() = StatusToProto(warning);
    SetTimestamp(outcome_.time, *order.mutable_commit_time());
  } else {
    order.set_phase(v1::Phase::ABORTED);
    *order.mutable_error() = StatusToProto(error_);
  }
}

v1::SaveOrder Save::OrderFor(const Member& member, const v1::SaveState& state, const JobContext& context) const {
  v1::SaveOrder order;
  order.set_step(step_);
  order.set_request_id(request_id());
  const SaveRank& known = rank(member.rank);
  switch (phase_) {
    case v1::Phase::COLLECTING:
    case v1::Phase::WRITING:
    case v1::Phase::COMMITTING:
      if (!has_plan()) {
        order.set_phase(v1::Phase::WAITING);
        break;
      }
      order.set_plan_digest(plan_.plan_digest);
      order.set_check_replicas(check_replicas_);
      order.set_sample_replicas(context.options.check_replicas != ReplicaCheck::kNever);
      if (!stalled_.ok()) *order.mutable_stalled() = StatusToProto(stalled_);
      order.set_phase(attempt_ == 0 ? v1::Phase::STAGING : v1::Phase::WRITING);
      order.set_summarize(context.options.alarms.wanted());
      if (static_cast<size_t>(member.rank) < moving_.size() && moving_[static_cast<size_t>(member.rank)]) {
        order.set_transfer_token(plan_.transfer_token);
      }
      exchange_.AddTo(member.rank, order);
      break;
    case v1::Phase::ABORTING:
      if (!HasBegunBy(member) || state.call() > known.state.call()) {
        order.set_phase(v1::Phase::WAITING);  // its call is answered when this attempt has ended
        return order;
      }
      // When a rank is told ABORTED, the files are gone, and it may save again.
      order.set_phase(v1::Phase::ABORTING);
      *order.mutable_error() = StatusToProto(error_);
      order.set_call(known.state.call());
      break;
    case v1::Phase::COMMITTED:
      TellOutcome(order);
      order.set_call(state.call());
      break;
    case v1::Phase::ABORTED:
      if (replies_.Holds(member, state)) {
        order.set_phase(v1::Phase::WAITING);
        return order;
      }
      TellOutcome(order);
      order.set_call(state.call());
      break;
    default:
      break;
  }
  if (attempt_ > 0) {
    order.set_attempt(attempt_);
    order.set_attempt_nonce(attempt_nonce_);
    order.set_directory(AttemptDirectory(context.job, step_, attempt_));
  }
  return order;
}

}  // namespace cairn
