#include "store/mirror/mirror_listing.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"
#include "store/read/listed_checkpoint.h"

namespace cairn {
namespace {

// Says what a step is that the root has no more, and of which the mirror has a commit that the root never had.
absl::Status OtherThere(const std::string& job, int64_t step, bool by_number, const std::string& address) {
  const std::string name = absl::StrCat(job, "@", step);
  return MakeError(
      Reason::kStepCommitted,
      absl::StrCat("the mirror ", address, by_number ? " may have" : " has",
                   " another checkpoint than the one that was ", name, " at the root, so no load takes it"),
      {{"job", job},
       {"step", absl::StrCat(step)},
       {"next",
        absl::StrCat("To look at it, give --root ", address, ". To delete it there: `cairn delete ", name, "`.")}});
}

}  // namespace

v1::MirroredCheckpoint DescribeCopy(const MirrorJob& job, const MirrorRule& rule, int64_t step) {
  v1::MirroredCheckpoint made;
  const MirrorStep* known = job.Find(step);
  if (const auto failed = job.failed().find(step); failed != job.failed().end()) {
    made.set_state(failed->second.for_good ? v1::MirroredCheckpoint::FAILED : v1::MirroredCheckpoint::WAITING);
    *made.mutable_error() = StatusToProto(failed->second.error);
  } else if (known == nullptr || !known->at_root) {  // it was committed after the last look
    const bool passed_over = rule.waits_for_each() && !rule.Wants(step);
    made.set_state(passed_over ? v1::MirroredCheckpoint::LEFT_OUT : v1::MirroredCheckpoint::WAITING);
  } else if (known->copy == MirrorStep::Copy::kSame && !known->copy_damaged) {
    made.set_state(v1::MirroredCheckpoint::MIRRORED);
  } else {
    const std::vector<int64_t>& copy = job.work().copy;
    const bool waits = std::find(copy.begin(), copy.end(), step) != copy.end();
    made.set_state(waits ? v1::MirroredCheckpoint::WAITING : v1::MirroredCheckpoint::LEFT_OUT);
  }
  return made;
}

std::vector<v1::Checkpoint> ListOnlyThere(const MirrorJob& seen, const std::string& job, const std::string& address) {
  std::vector<v1::Checkpoint> made;
  for (const auto& [number, step] : seen.only_there()) {
    v1::Checkpoint& entry = made.emplace_back(ListedCheckpoint(job, step, seen.lineage()));
    if (seen.Find(number)->superseded) entry.set_state(v1::Phase::SUPERSEDED);
    if (const absl::Status damage = seen.DamageOf(number); !damage.ok()) {
      entry.set_state(v1::Phase::DAMAGED);
      *entry.mutable_error() = StatusToProto(damage);
    }
  }
  for (const auto& [number, step] : seen.useless_there()) {
    v1::Checkpoint& entry = made.emplace_back(ListedCheckpoint(job, step, seen.lineage()));
    const MirrorStep& known = *seen.Find(number);
    if (!known.other_there) continue;
    entry.set_state(v1::Phase::SUPERSEDED);
    *entry.mutable_error() = StatusToProto(OtherThere(job, number, known.by_number, address));
  }
  for (v1::Checkpoint& entry : made) entry.mutable_mirror()->set_state(v1::MirroredCheckpoint::ONLY_THERE);
  std::sort(made.begin(), made.end(),
            [](const v1::Checkpoint& a, const v1::Checkpoint& b) { return a.step() < b.step(); });
  return made;
}

absl::Status DescribeUndone(const MirrorJob& job, const std::string& address) {
  if (!job.undone().ok()) return job.undone();
  for (const auto& [step, failed] : job.failed()) {
    if (failed.for_good) continue;
    return WithMetadata(Annotate(failed.error, absl::StrCat("the mirror ", address)),
                        {{"next", absl::StrCat("The coordinator tries again. Look at the storage of ", address, ".")}});
  }
  return absl::OkStatus();
}

}  // namespace cairn
