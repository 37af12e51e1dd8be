#include "coordinator/job/checkpoints.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/decision/rank_error.h"
#include "coordinator/save/save_view.h"
#include "store/read/listed_checkpoint.h"

namespace cairn {

bool Checkpoints::Knows(const std::string& request_id) const {
  const CheckpointKey key{std::nullopt, request_id};
  return requests_.Contains(request_id) || saves_.Find(key) != nullptr || outcomes_.Find(key) != nullptr;
}

std::optional<absl::StatusOr<v1::Checkpoint>> Checkpoints::Find(const CheckpointKey& key, uint64_t known_epoch,
                                                                const JobContext& context) const {
  // A save that failed to take the place of a checkpoint has changed nothing about it.
  const bool stands = key.step.has_value() && outcomes_.Committed(*key.step);
  if (const Save* save = saves_.Find(key); save != nullptr && !(stands && save->phase() == v1::Phase::ABORTED)) {
    v1::Checkpoint view = SaveView(*save).Checkpoint(context);
    if (key.by_request()) view.set_request_id(key.request_id);
    return view;
  }
  if (const SaveRequest* request = requests_.Find(key); request != nullptr) return requests_.View(*request, context);
  if (!recovery_.done()) {
    if (!recovery_.error().ok()) return recovery_.error();
    return std::nullopt;
  }
  if (const StoredAttempt* outcome = outcomes_.Find(key); outcome != nullptr) return ViewOfOutcome(*outcome, context);
  const bool from_before = key.by_request() && known_epoch != 0 && known_epoch < context.options.coordinator_epoch;
  if (from_before) return ViewFromBefore(key, known_epoch, context);
  return NotCommitted(key, context);
}

std::optional<v1::Checkpoint> Checkpoints::Shown(const JobContext& context, const ShownRanks& shown) const {
  const Save* save = saves_.Shown();
  if (save != nullptr && !save->ended()) return SaveView(*save).Checkpoint(context, shown);
  // A request that waits, or that has failed since, must not be hidden by an older commit.
  if (const SaveRequest* request = requests_.Shown(); request != nullptr) {
    return requests_.View(*request, context, shown);
  }
  if (save != nullptr) return SaveView(*save).Checkpoint(context, shown);
  return std::nullopt;
}

NoteworthyRanks Checkpoints::Noteworthy(const JobContext& context) const {
  if (const Save* save = saves_.Shown(); save != nullptr && !save->ended()) return SaveView(*save).Noteworthy(context);
  if (const SaveRequest* request = requests_.Shown(); request != nullptr) {
    return requests_.Noteworthy(*request, context);
  }
  return {};
}

v1::Checkpoint ViewOfOutcome(const StoredAttempt& outcome, const JobContext& context) {
  v1::Checkpoint view = CheckpointOf(context.job, outcome);
  view.set_coordinator_epoch(context.options.coordinator_epoch);
  view.set_revision(1);
  // If a save ended before the coordinator's start, only its end is known.
  if (view.has_commit_time()) *view.mutable_create_time() = view.commit_time();
  return view;
}

v1::Checkpoint Checkpoints::ViewFromBefore(const CheckpointKey& key, uint64_t known_epoch, const JobContext& context) {
  v1::Checkpoint lost;
  lost.set_job(context.job);
  lost.set_request_id(key.request_id);
  const bool waiting = context.now - context.started < 2 * context.options.lease_ttl;
  // Until it is certain, the answer carries the epoch of the coordinator that the caller knows, so that the caller
  // asks with that epoch again.
  lost.set_coordinator_epoch(waiting ? known_epoch : context.options.coordinator_epoch);
  lost.set_revision(waiting ? 1 : 2);
  lost.set_state(waiting ? v1::Phase::PREPARING : v1::Phase::ABORTED);
  if (!waiting) {
    *lost.mutable_error() = StatusToProto(OperationError(Reason::kCoordinatorRestarted, context, {"save"},
                                                         "no rank had begun the save when the coordinator restarted"));
  }
  return lost;
}

absl::Status Checkpoints::NotCommitted(const CheckpointKey& key, const JobContext& context) {
  const std::string what = key.step.has_value() ? absl::StrCat(context.job, "@", *key.step)
                           : key.by_request()   ? absl::StrCat(context.job, ": request ", key.request_id)
                                                : context.job;
  ErrorMetadata metadata = {{"job", context.job}};
  if (key.step.has_value()) metadata.emplace_back("step", absl::StrCat(*key.step));
  if (!key.step.has_value() && !key.by_request()) {
    metadata.emplace_back("next", "If the job should have one, check its name: `cairn jobs` lists the jobs.");
  }
  return MakeError(
      Reason::kNotCommitted,
      absl::StrCat(what, key.step.has_value() || key.by_request() ? " was never saved" : " has no checkpoint"),
      metadata);
}

}  // namespace cairn
