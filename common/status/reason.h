// The one table of error reasons. Every error of Cairn is an absl::Status made here. It carries exactly one reason as
// google.rpc.ErrorInfo, which crosses the wire unchanged. Callers switch on the reason, never on the text.
#ifndef CAIRN_COMMON_STATUS_REASON_H_
#define CAIRN_COMMON_STATUS_REASON_H_

#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace cairn {

inline constexpr std::string_view kErrorDomain = "cairn.v1";

enum class Reason {
  // These are about requests.
  kBadJobName,
  kBadStep,
  kBadName,
  kBadQuantity,
  kBadRequest,
  kMessageTooLarge,
  kUnsupported,
  // These are about layouts.
  kBadDtype,
  kBadShape,
  kShapeOverflow,
  kShardOutOfBounds,
  kShardGap,
  kShardOverlap,
  kShapeMismatch,
  kDtypeMismatch,
  kReplicaMismatch,
  kStateAlarm,
  kNamesDropped,
  kNameCollision,
  kAliasUnresolved,
  kObjectMismatch,
  kMissingNames,
  kUnexpectedNames,
  kEmptyLayout,
  kLayoutChanged,
  // These are about membership.
  kRankConflict,
  kRankOutOfRange,
  kWorldSizeMismatch,
  kWorldIncomplete,
  kNotRegistered,
  kStaleEpoch,
  kStaleIncarnation,
  kRankLate,
  kRankLost,
  kTrainerLost,
  // Saves and loads.
  kStepCommitted,
  kStepPassed,
  kStepRefused,
  kSaveInProgress,
  kSaveCancelled,
  kSuperseded,
  kCoordinatorRestarted,
  kNotCommitted,
  kLastCheckpoint,
  kCheckpointPinned,
  kCheckpointInUse,
  kRetentionUnreadable,
  kJobNotFound,
  kPlanUnknown,
  // These are about storage.
  kChecksumMismatch,
  kFingerprintMismatch,
  kFileTruncated,
  kFileMissing,
  kRootMissing,
  kBadSafetensors,
  kBadForeignFile,
  kManifestCorrupt,
  kFormatTooNew,
  kNoSpace,
  kStorageReadOnly,
  kStorageError,
  kFsyncFailed,
  kNoAtomicCreate,
  kPathEscape,
  kRootInUse,
  kRootMismatch,
  kStorageStalled,
  kCommitUnproven,
  // These are about the machine.
  kMemoryLimit,
  kMemoryUnsealed,
  kSocketDirectory,
  kPeerUid,
  kBadToken,
  kNotLoopback,
  kCoordinatorUnreachable,
  kOverloaded,
  kAgentUnreachable,
  kTransportFailed,
  kTimedOut,
  kInterrupted,
  kDeviceError,
  kDeviceStalled,
  kTornSnapshot,
  kNcclUnavailable,
  kInternal,
  // These are about mappings (AOA).
  kMappingSyntax,
  kMappingMacro,
  kMappingUnknownName,
  kMappingShape,
  kMappingDtype,
  kMappingUncovered,
  kMappingRange,
  // These are about training data.
  kInputUnreadable,
  kBadJsonLine,
  kInvalidUtf8,
  kBadTokenizer,
  kBadPattern,
  kIndexCorrupt,
  kOutputExists,
};

struct ReasonInfo {
  Reason reason;
  std::string_view name;     // UPPER_SNAKE, as on the wire
  absl::StatusCode code;     // the canonical code that goes with it
  std::string_view meaning;  // one sentence: when an error has this reason
  // What the reader should do; see NextActionOf. Empty for BAD_REQUEST, whose messages say what to change.
  std::string_view next_action;
};

// All reasons, in the order of the enum.
std::span<const ReasonInfo> ReasonTable();
const ReasonInfo& InfoOf(Reason reason);
// Finds a reason by its name on the wire; nothing for a name that this version does not know.
std::optional<Reason> ReasonFromName(std::string_view name);

using ErrorMetadata = std::vector<std::pair<std::string, std::string>>;

// Makes an error with this reason. `message` names job, step, rank, file or tensor. `metadata` should also hold the
// numbers and names of the message ("job", "step", "attempt", "rank", "ranks", "phase", "file", "tensor"). Messages are
// cut at 512 bytes and metadata at 1 KiB in all, so that a status stays far below gRPC's 8 KiB limit. A character that
// is not printable (common/base/printable.h), except a line break or a tab, is written as "\xNN".
absl::Status MakeError(Reason reason, std::string_view message, const ErrorMetadata& metadata = {});

// Returns the reason that `status` carries; nothing for OK and for errors that Cairn did not make.
std::optional<Reason> ReasonOf(const absl::Status& status);
inline bool HasReason(const absl::Status& status, Reason reason) { return ReasonOf(status) == reason; }
// Returns the metadata that `status` carries, by key.
std::map<std::string, std::string> MetadataOf(const absl::Status& status);

// Returns the same error with `prefix` and ": " before its message. Reason and metadata stay.
absl::Status Annotate(const absl::Status& status, std::string_view prefix, const ErrorMetadata& more = {});

// Returns the same error with the entries of `more` added, except those whose keys the metadata already has.
absl::Status WithMetadata(const absl::Status& status, const ErrorMetadata& more);

// Returns what the reader of this error should do. If the metadata has "next", it is that text. Else it is the table's
// next_action, where the metadata's "job", "step" and "root" replace JOB, JOB@STEP and ROOT in commands. Empty for an
// error that Cairn did not make, and for a BAD_REQUEST without "next".
std::string NextActionOf(const absl::Status& status);

// Returns at most eight ranks, then "and N more": "0, 1, 5".
std::string JoinRanks(std::span<const int> ranks);

}  // namespace cairn

#endif  // CAIRN_COMMON_STATUS_REASON_H_
