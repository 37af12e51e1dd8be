#include "common/format/alarm.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr std::array<AlarmInfo, 14> kTable = {{
    {alarm::kReplicasDiffer, ""},  // the reason says it
    {alarm::kSameStep,
     "The trainer handed over what it had handed over before: look whether it trains between the steps, and whether it "
     "saves the state that it trains."},
    {alarm::kStaleRank,
     "These ranks handed over an old copy: look for a buffer or a state dict that is made once and kept. Go on from a "
     "step before this one."},
    {alarm::kStaleTensor,
     "The optimizer moves for these tensors, and they stand still: look whether the optimizer has the tensors that the "
     "model has, and whether the state dict is made anew for each save."},
    {alarm::kFrozenOptimizer,
     "The weights move and the optimizer's state does not: look whether the state dict of the optimizer is made anew "
     "for each save, on all ranks."},
    {alarm::kReturned,
     "The trainer handed over what was saved two saves before: look for two buffers or state dicts that take turns. Go "
     "on from a step before this one."},
    {alarm::kWrongPlace,
     "Look whether the optimizer's state was loaded, or is saved, under the names of other weights, or one moment "
     "under "
     "the name of the other. Go on from a step before this one."},
    {alarm::kUntied,
     "Look whether both names of the weight are still one tensor, in the model and in the state that is saved."},
    {alarm::kZeroMoments,
     "A training that resumes from this step begins without its optimizer's state: look whether it was loaded, and is "
     "saved by the ranks that have it."},
    {alarm::kNonFinite,
     "Go on from the newest step without alarms (`cairn list JOB`; in a program `restore_or_initialize(state, "
     "step=...)`), and look at the batches and ranks of the steps since."},
    {alarm::kJump,
     "Compare the steps (`cairn diff JOB@OLD JOB@STEP`). Look for a wrong load, a shard in another's place, a "
     "transposed "
     "matrix, or a learning rate that is far too large."},
    {alarm::kStateDrift, "If the change is not meant, compare the configurations of both runs."},
    {alarm::kCounterStopped,
     "Look whether this part of the state is read from what the training counts; a resumed training would repeat its "
     "data or its schedule."},
    {alarm::kEqualTensors,
     "Look whether one of them was saved, or loaded, in the place of another: a wrong index of an expert or of a "
     "layer."},
}};

}  // namespace

std::span<const AlarmInfo> AlarmTable() { return kTable; }

absl::Status AlarmStatus(const Alarm& alarm, const std::string& job, int64_t step) {
  ErrorMetadata metadata = {{"job", job}, {"step", absl::StrCat(step)}, {"alarm", alarm.kind}};
  for (const AlarmInfo& info : kTable) {
    if (info.kind != alarm.kind || info.next.empty()) continue;
    const std::string name = absl::StrCat(job, "@", step);
    metadata.emplace_back("next", absl::StrReplaceAll(std::string(info.next), {{"JOB@STEP", name}, {"JOB", job}}));
  }
  if (alarm.kind == alarm::kReplicasDiffer) return MakeError(Reason::kReplicaMismatch, alarm.message, metadata);
  return MakeError(Reason::kStateAlarm, absl::StrCat(alarm.kind, ": ", alarm.message), metadata);
}

}  // namespace cairn
