#include "store/write/changed_record.h"

#include "common/file/put_result.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// Larger ones are no records of these functions, and are not read.
constexpr uint64_t kMaxBytes = 4096;

}  // namespace

absl::Status UnknownOutcome(const absl::Status& failed) {
  return WithMetadata(
      Annotate(failed, "it is not known whether this was done"),
      {{"outcome", "unknown"},
       {"next", "Check the disk, look at the present state (`cairn list`), and then repeat the command."}});
}

bool OutcomeIsUnknown(const absl::Status& status) { return MetadataOf(status).contains("outcome"); }

absl::Status SettleChange(Storage& storage, const std::string& path, const absl::Status& failed) {
  const absl::Status settled = storage.Sync(path.substr(0, path.rfind('/')));
  return settled.ok() ? settled : UnknownOutcome(failed);
}

absl::Status PutRecord(Storage& storage, const std::string& path, const std::string& bytes, bool replace) {
  const absl::Status put = replace ? storage.PutReplacing(path, bytes) : storage.PutIfAbsent(path, bytes).status();
  if (put.ok()) return put;
  const auto standing = storage.Read(path, bytes.size() + 1);
  if (standing.ok() && *standing == bytes) return SettleChange(storage, path, put);
  const bool refused = standing.ok() || HasReason(standing.status(), Reason::kFileMissing) ||
                       HasReason(standing.status(), Reason::kMessageTooLarge);
  return refused ? put : UnknownOutcome(put);
}

absl::Status RemoveRecord(Storage& storage, const std::string& path) {
  const absl::Status removed = storage.RemoveAll(path);
  if (removed.ok()) return removed;
  const absl::Status standing = storage.Read(path, kMaxBytes).status();
  if (standing.ok()) return removed;
  return HasReason(standing, Reason::kFileMissing) ? SettleChange(storage, path, removed) : UnknownOutcome(removed);
}

}  // namespace cairn
