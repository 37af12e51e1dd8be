#include "coordinator/job/testing/save_invariants.h"

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

std::string Name(AttemptKey attempt) { return absl::StrCat("step ", attempt.first, " attempt ", attempt.second); }

}  // namespace

std::string SaveInvariants::AfterPut(const StoredAttempt& outcome) {
  if (!outcome.committed) return "";
  const AttemptKey key{outcome.step, outcome.attempt};
  const bool again = !committed_steps_.insert(outcome.step).second;
  if (again) ++replaced_;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (!storage_.HasFile(key, rank)) return absl::StrCat(Name(key), " committed without the files of rank ", rank);
  }
  if (again && !storage_.MayReplace(key)) return absl::StrCat("step ", outcome.step, " committed twice");
  if (told_aborted_.contains(key)) return absl::StrCat(Name(key), " committed after a rank was told that it was not");
  return "";
}

std::string SaveInvariants::BeforeRemove(const RemoveFiles& remove) const {
  const AttemptKey key{remove.step, remove.attempt};
  const StoredAttempt* outcome = storage_.Outcome(key);
  if (outcome == nullptr || outcome->stands()) {
    return absl::StrCat("files of ", Name(key), " removed without an abort record");
  }
  return outcome->deleted == remove.deleted ? "" : "files are removed that nobody has asked for";
}

std::string SaveInvariants::Readable() const {
  const auto standing = storage_.Standing();
  if (standing.empty() && !committed_steps_.empty()) return "no checkpoint is left";
  for (const auto& attempt : standing) {
    if (!storage_.HasFiles(attempt)) return absl::StrCat(Name(attempt), " lost its files");
  }
  return "";
}

std::string SaveInvariants::Told(int rank, const v1::SaveOrder& order) {
  const AttemptKey key{order.step(), order.attempt()};
  const StoredAttempt* outcome = storage_.Outcome(key);
  const bool committed = outcome != nullptr && outcome->committed;
  if (order.phase() == v1::Phase::COMMITTED) {
    return committed ? "" : absl::StrCat("rank ", rank, " was told that step ", order.step(), " was committed");
  }
  if (order.attempt() > 0) told_aborted_.insert(key);
  const absl::Status error = StatusFromProto(order.error());
  const auto reason = ReasonOf(error);
  if (!reason.has_value()) return "an abort without a reason";
  if ((reason == Reason::kRankLate || reason == Reason::kRankLost) && MetadataOf(error)["ranks"].empty()) {
    return absl::StrCat("an abort that names nobody: ", std::string(error.message()));
  }
  if (order.attempt() > 0 && committed) {
    return absl::StrCat("rank ", rank, " was told that ", Name(key), " was aborted, and it is committed");
  }
  return "";
}

std::string SaveInvariants::Tidy() const {
  for (const AttemptKey& key : storage_.directories()) {
    const StoredAttempt* outcome = storage_.Outcome(key);
    const bool stands = outcome != nullptr && outcome->stands();
    if (!stands && !orphans_.contains(key)) return absl::StrCat("files of ", Name(key), " were never removed");
  }
  return "";
}

}  // namespace cairn
