#include "coordinator/job/save_answers.h"

#include "absl/strings/str_cat.h"
#include "common/base/time_proto.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/decision/rank_error.h"

namespace cairn {
namespace {

void TellCommitted(const StoredAttempt& outcome, v1::SaveOrder& order) {
  order.set_phase(v1::Phase::COMMITTED);
  order.set_bytes(outcome.bytes);
  order.set_world_size(outcome.world_size);
  SetTimestamp(outcome.time, *order.mutable_commit_time());
}

v1::SaveOrder Wait(v1::SaveOrder order, const absl::Status& stalled = absl::OkStatus()) {
  order.set_phase(v1::Phase::WAITING);
  if (!stalled.ok()) *order.mutable_stalled() = StatusToProto(stalled);
  return order;
}

v1::SaveOrder Aborted(v1::SaveOrder order, const absl::Status& error) {
  order.set_phase(v1::Phase::ABORTED);
  *order.mutable_error() = StatusToProto(error);
  return order;
}

}  // namespace

std::string CallerOf(const Member& member, const v1::SaveState& state) {
  return absl::StrCat("rank ", member.rank, " ", member.incarnation, " ", state.call());
}

bool SaveAnswers::IsOfEarlierAttempt(const v1::SaveState& state, const Save& active) const {
  return state.attempt() > 0 && state.attempt() != active.attempt() &&
         outcomes_.FindSettled(state.step(), state.attempt()) != nullptr;
}

v1::SaveOrder SaveAnswers::OrderFor(const Member& member, const v1::SaveState& state, const JobContext& context) const {
  if (const Save* save = saves_.EndedOf(member, state); save != nullptr) return save->OrderFor(member, state, context);
  if (outcomes_.WasRefused(state.step(), CallerOf(member, state))) {
    v1::SaveOrder order;
    order.set_step(state.step());
    order.set_call(state.call());
    return Aborted(std::move(order), OutcomeBook::CommittedError(state.step(), context));
  }
  if (const Save* save = saves_.Active(state.step()); save != nullptr) {
    return IsOfEarlierAttempt(state, *save) ? OrderFromStorage(state, context) : save->OrderFor(member, state, context);
  }
  if (const Save* save = saves_.EndedFor(member, state); save != nullptr) return save->OrderFor(member, state, context);
  return OrderFromStorage(state, context);
}

v1::SaveOrder SaveAnswers::OrderFromStorage(const v1::SaveState& state, const JobContext& context) const {
  v1::SaveOrder order;
  order.set_step(state.step());
  order.set_call(state.call());
  order.set_attempt(state.attempt());
  order.set_attempt_nonce(state.attempt_nonce());
  if (!recovery_.done() || !CheckStep(state.step()).ok()) return Wait(std::move(order), recovery_.stalled());
  const StoredAttempt* outcome = outcomes_.FindSettled(state.step(), state.attempt());
  if (outcome == nullptr) return Wait(std::move(order), outcomes_.ReadStalled(state.step(), context));
  if (outcome->committed) {
    TellCommitted(*outcome, order);
    return order;
  }
  const bool stopped = state.phase() == v1::Phase::STOPPED || state.phase() == v1::Phase::FAILED;
  order.set_phase(stopped ? v1::Phase::ABORTED : v1::Phase::ABORTING);
  *order.mutable_error() = StatusToProto(outcome->error);
  return order;
}

v1::SaveOrder SaveAnswers::OutcomeFor(const Member& member, const v1::SaveState& asked,
                                      const JobContext& context) const {
  const int64_t step = asked.step();
  const uint32_t attempt = asked.attempt();
  v1::SaveOrder order;
  order.set_step(step);
  order.set_call(asked.call());
  order.set_attempt(attempt);
  if (const absl::Status status = CheckStep(step); !status.ok()) return Aborted(std::move(order), status);
  if (attempt == 0 && asked.save() == 0) {
    return Aborted(std::move(order), MakeError(Reason::kBadRequest,
                                               absl::StrCat(context.job, "@", step, ": attempts are counted from 1")));
  }
  if (const Save* save = saves_.FindAsked(member.rank, asked); save != nullptr) {
    if (!save->ended()) return Wait(std::move(order), save->stalled());
    order.set_attempt(save->attempt());
    if (save->attempt() > 0) order.set_directory(AttemptDirectory(context.job, step, save->attempt()));
    save->TellOutcome(order);
    return order;
  }
  if (attempt == 0) {
    order.set_phase(v1::Phase::UNKNOWN);
    return order;
  }
  if (!recovery_.done()) return Wait(std::move(order), recovery_.stalled());
  if (const StoredAttempt* outcome = outcomes_.Find(step, attempt); outcome != nullptr) {
    if (outcomes_.FindSettled(step, attempt) == nullptr) return Wait(std::move(order), outcome->error);
    if (!outcome->committed) return Aborted(std::move(order), outcome->error);
    order.set_directory(AttemptDirectory(context.job, step, attempt));
    TellCommitted(*outcome, order);
    return order;
  }
  // Nobody has finished the attempt yet. Ranks may come back with it; if they do not, it gets its abort record.
  if (leftovers_.Contains(step, attempt)) return Wait(std::move(order));
  const Operation operation{"save", step, attempt};
  const bool later = outcomes_.HasLater(step, attempt) || saves_.HasLater(step, attempt);
  return Aborted(std::move(order),
                 later ? OperationError(Reason::kSuperseded, context, operation,
                                        "was not committed: a later attempt of the step has begun")
                       : OperationError(Reason::kNotCommitted, context, operation,
                                        "storage holds nothing of it; if it was committed, it was removed since"));
}

}  // namespace cairn
