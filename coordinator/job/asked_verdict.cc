// What the coordinator tells an agent that restarted, and asks about an attempt of which it holds nothing.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/time_proto.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "common/storage/checkpoint_path.h"
#include "coordinator/job/job.h"

namespace cairn {
namespace {

constexpr absl::Duration kReadAgain = absl::Seconds(1);

}  // namespace

// All ranks get the same verdict: the save's, as long as the save is remembered, then the one in storage. ABORTED is
// told only if nobody can commit the attempt any more.
v1::SaveOrder Job::VerdictFor(const v1::SaveState& asked, const JobContext& context) const {
  const int64_t step = asked.step();
  const uint32_t attempt = asked.attempt();
  v1::SaveOrder order;
  order.set_step(step);
  order.set_call(asked.call());
  order.set_attempt(attempt);
  order.set_action(v1::SaveOrder::WAIT);
  const auto wait = [&](const absl::Status& stalled) {
    if (!stalled.ok()) *order.mutable_stalled() = StatusToProto(stalled);
    return order;
  };
  const auto aborted = [&](const absl::Status& error) {
    order.set_action(v1::SaveOrder::ABORTED);
    *order.mutable_error() = StatusToProto(error);
    return order;
  };
  if (const absl::Status status = CheckStep(step); !status.ok()) return aborted(status);
  if (attempt == 0) {
    return aborted(MakeError(Reason::kBadRequest, absl::StrCat(name_, "@", step, ": attempts are counted from 1")));
  }
  for (const Save& save : saves_) {
    if (save.step() != step || save.attempt() != attempt) continue;
    if (!save.ended()) return wait(save.stalled());
    order.set_directory(AttemptDirectory(name_, step, attempt));
    save.TellVerdict(order);
    return order;
  }
  if (!recovered_) return wait(recovery_stalled_);
  if (const auto found = verdicts_.find({step, attempt}); found != verdicts_.end()) {
    const VerdictSummary* verdict = SettledVerdict(asked);
    if (verdict == nullptr) return wait(found->second.error);
    if (!verdict->committed) return aborted(verdict->error);
    order.set_action(v1::SaveOrder::COMMITTED);
    order.set_directory(AttemptDirectory(name_, step, attempt));
    order.set_bytes(verdict->bytes);
    order.set_world_size(verdict->world_size);
    SetTimestamp(verdict->commit_time, *order.mutable_commit_time());
    return order;
  }
  // Nobody has finished the attempt yet. Ranks may come back with it; if they do not, it gets its tombstone.
  const bool unfinished = std::any_of(sweeps_.begin(), sweeps_.end(), [&](const Sweep& sweep) {
    return sweep.leftover.step == step && sweep.leftover.attempt == attempt;
  });
  if (unfinished) return wait(absl::OkStatus());
  const auto later = verdicts_.upper_bound({step, attempt});
  const bool higher = (later != verdicts_.end() && later->first.first == step) ||
                      std::any_of(saves_.begin(), saves_.end(),
                                  [&](const Save& save) { return save.step() == step && save.attempt() > attempt; });
  const Operation operation{"save", step, attempt};
  return aborted(higher ? OperationError(Reason::kSuperseded, context, operation,
                                         "was not committed: a later attempt of the step has begun")
                        : OperationError(Reason::kNotCommitted, context, operation,
                                         "storage holds nothing of it; if it was committed, it was removed since"));
}

void Job::ApplyAsked(const Member& member, const v1::SaveState& asked, JobContext& context) {
  for (Save& save : saves_) {
    if (save.step() == asked.step() && save.attempt() == asked.attempt() && save.ended()) save.Heard(member.rank);
  }
  const bool unread = verdicts_.contains({asked.step(), asked.attempt()}) && SettledVerdict(asked) == nullptr;
  if (!unread || context.now < next_verdict_read_) return;
  next_verdict_read_ = context.now + kReadAgain;
  StepRead& read = step_reads_[asked.step()];
  read.waiting.insert(CallerOf(member, asked));
  ReadAgain(asked.step(), read, context);
}

}  // namespace cairn
