#include "common/status/reason.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/printable.h"
#include "common/base/shell_word.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/rpc/error_details.pb.h"

namespace cairn {
namespace {

constexpr char kPayloadUrl[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr size_t kMaxMessageBytes = 512;
constexpr size_t kMaxMetadataBytes = 1024;
constexpr size_t kMaxRanks = 8;

constexpr ReasonInfo kTable[] = {
    {Reason::kBadJobName, "BAD_JOB_NAME", absl::StatusCode::kInvalidArgument,
     "A job's name is not segments of [a-z0-9][a-z0-9._-]* joined by '/', or a segment is twelve digits.",
     "Choose another job name."},
    {Reason::kBadStep, "BAD_STEP", absl::StatusCode::kInvalidArgument,
     "A step is negative or has more than twelve digits.", "Give a step from 0 to 999999999999."},
    {Reason::kBadName, "BAD_NAME", absl::StatusCode::kInvalidArgument,
     "A tensor's or object's name is empty, too long, or not printable UTF-8, or one of its keys is no text and no "
     "integer.",
     "Rename it: a name is printable text of up to 1024 bytes, and a key of a dict with tensors is text or an "
     "integer."},
    {Reason::kBadQuantity, "BAD_QUANTITY", absl::StatusCode::kInvalidArgument, "A duration or size cannot be read.",
     "Write durations as 90s or 10m, sizes as 512MiB or 5GB."},
    {Reason::kBadRequest, "BAD_REQUEST", absl::StatusCode::kInvalidArgument,
     "A request lacks a field or contradicts itself.",
     // The message itself says what to change, unless its maker knew more.
     ""},
    {Reason::kMessageTooLarge, "MESSAGE_TOO_LARGE", absl::StatusCode::kResourceExhausted,
     "A message or blob is larger than its limit.",
     "Send less at once; a layout of this size needs fewer or shorter names."},
    {Reason::kUnsupported, "UNSUPPORTED", absl::StatusCode::kUnimplemented, "This version cannot do what was asked.",
     "See the limitations in the README, or use a newer version."},
    {Reason::kBadDtype, "BAD_DTYPE", absl::StatusCode::kInvalidArgument, "A dtype is not one that Cairn knows.",
     "Use a torch dtype name without its prefix."},
    {Reason::kBadShape, "BAD_SHAPE", absl::StatusCode::kInvalidArgument,
     "A shape or offset is negative or has the wrong number of dimensions.", "Correct the shard's description."},
    {Reason::kShapeOverflow, "SHAPE_OVERFLOW", absl::StatusCode::kInvalidArgument, "A tensor has 2^63 bytes or more.",
     "Correct the global shape."},
    {Reason::kShardOutOfBounds, "SHARD_OUT_OF_BOUNDS", absl::StatusCode::kInvalidArgument,
     "A shard or flat range reaches outside its tensor or box.", "Correct the shard's offset, shape or range."},
    {Reason::kShardGap, "SHARD_GAP", absl::StatusCode::kInvalidArgument, "Part of a tensor is held by no rank.",
     "Let every part be declared by a rank; check offsets and world size."},
    {Reason::kShardOverlap, "SHARD_OVERLAP", absl::StatusCode::kInvalidArgument,
     "Two shards of a tensor overlap without being equal.",
     "Declare replicas with equal offset and shape; check offsets."},
    {Reason::kShapeMismatch, "SHAPE_MISMATCH", absl::StatusCode::kInvalidArgument,
     "Ranks, or checkpoint and target, disagree on a tensor's global shape.",
     "Compare the configuration of the model with that of the other ranks, or with the checkpoint's (`cairn show "
     "JOB@STEP --tensors`)."},
    {Reason::kDtypeMismatch, "DTYPE_MISMATCH", absl::StatusCode::kInvalidArgument,
     "Ranks, or checkpoint and target, disagree on a tensor's dtype.",
     "Use one dtype, or load through a mapping that casts."},
    {Reason::kReplicaMismatch, "REPLICA_MISMATCH", absl::StatusCode::kFailedPrecondition,
     "Ranks that declared the same shard hold different bytes.",
     "Were the ranks seeded differently? Seed them alike before the model is made; wrap what each rank has for itself, "
     "such as the state of its random numbers, in cairn.per_rank (above 1 MiB, give it a name for each rank). If each "
     "rank holds a slice, declare it with its offset. If they were equal before, load a step from before they parted, "
     "and look at the ranks that the message names: data order, hardware."},
    {Reason::kStateAlarm, "STATE_ALARM", absl::StatusCode::kFailedPrecondition,
     "The state of a committed checkpoint looks wrong. The checkpoint is kept, and can be loaded.",
     "Read what docs/trust.md says of the alarm."},
    {Reason::kNamesDropped, "NAMES_DROPPED", absl::StatusCode::kFailedPrecondition,
     "The last committed step had names that this save lacks.",
     "Put them back (offloaded optimizer states?), or save with allow_dropped_names=True."},
    {Reason::kNameCollision, "NAME_COLLISION", absl::StatusCode::kInvalidArgument,
     "One name was declared twice with different contents.",
     "Give each tensor a name of its own; shift local expert numbers to global ones."},
    {Reason::kAliasUnresolved, "ALIAS_UNRESOLVED", absl::StatusCode::kInvalidArgument,
     "An alias names no declared tensor, or aliases name each other in a circle.",
     "Declare the tensor that the alias names."},
    {Reason::kObjectMismatch, "OBJECT_MISMATCH", absl::StatusCode::kFailedPrecondition,
     "An object that is the same on all ranks differs between ranks.",
     "Make it equal on all ranks. If each rank has a value of its own, wrap it in cairn.per_rank."},
    {Reason::kMissingNames, "MISSING_NAMES", absl::StatusCode::kNotFound,
     "The target has names that the checkpoint does not have.",
     "Compare the names with `cairn show JOB@STEP --tensors` (`--objects` for values that are no tensors), and map "
     "names that have changed. With strict=False the missing values stay as they are."},
    {Reason::kUnexpectedNames, "UNEXPECTED_NAMES", absl::StatusCode::kFailedPrecondition,
     "The checkpoint has tensors, or values in dicts with tensors, that the target does not have.",
     "Give the state a place for them, load with strict=False, or remove tensors by a mapping."},
    {Reason::kEmptyLayout, "EMPTY_LAYOUT", absl::StatusCode::kInvalidArgument, "No rank declared any tensor or object.",
     "Pass a state that holds something."},
    {Reason::kLayoutChanged, "LAYOUT_CHANGED", absl::StatusCode::kAborted,
     "Another rank's layout changed and bytes that the new plan needs were not staged.",
     "Save again: the next save uses the new plan."},
    {Reason::kRankConflict, "RANK_CONFLICT", absl::StatusCode::kAlreadyExists, "Another live agent holds this rank.",
     "Correct the rank, or wait until the other agent's lease has ended."},
    {Reason::kRankOutOfRange, "RANK_OUT_OF_RANGE", absl::StatusCode::kInvalidArgument,
     "A rank is not below the world size.", "Correct --rank or --world-size."},
    {Reason::kWorldSizeMismatch, "WORLD_SIZE_MISMATCH", absl::StatusCode::kFailedPrecondition,
     "Agents of a job disagree on its world size.",
     "Start every agent with the same --world-size; old agents must have ended."},
    {Reason::kWorldIncomplete, "WORLD_INCOMPLETE", absl::StatusCode::kDeadlineExceeded,
     "Not all ranks of the job have registered.", "Start the missing ranks' agents."},
    {Reason::kNotRegistered, "NOT_REGISTERED", absl::StatusCode::kFailedPrecondition,
     "The coordinator does not know this agent.",
     "The agent registers again by itself; if it does not, look at its log."},
    {Reason::kStaleEpoch, "STALE_EPOCH", absl::StatusCode::kAborted,
     "The message belongs to an earlier coordinator or membership epoch.", "Nothing: the sender registers again."},
    {Reason::kStaleIncarnation, "STALE_INCARNATION", absl::StatusCode::kAborted,
     "A newer process has taken this rank's place.", "Stop the old process."},
    {Reason::kRankLate, "RANK_LATE", absl::StatusCode::kDeadlineExceeded,
     "Ranks made no progress for the phase timeout, or kept other ranks waiting for longer than the others' timeout.",
     "Look at the named ranks. Is there no agent, is a process stopped or swapped out, is the disk slow, or did the "
     "rank never call save or load? Then try again. `cairn status JOB` shows which ranks the others wait for."},
    {Reason::kRankLost, "RANK_LOST", absl::StatusCode::kUnavailable, "Agents have sent nothing for the lease time.",
     "Restart the named agents; the next save works when all are back."},
    {Reason::kTrainerLost, "TRAINER_LOST", absl::StatusCode::kAborted, "A trainer ended before its state was staged.",
     "Restart the job; its load takes the last committed step."},
    {Reason::kStepCommitted, "STEP_COMMITTED", absl::StatusCode::kAlreadyExists,
     "The step already has a committed checkpoint.",
     "Save another step. To replace this one, save it with overwrite=True on all ranks."},
    {Reason::kStepPassed, "STEP_PASSED", absl::StatusCode::kFailedPrecondition,
     "A rank's training has passed the step.", "Request a later step, or no step: then the ranks agree on one."},
    {Reason::kStepRefused, "STEP_REFUSED", absl::StatusCode::kAborted,
     "The ranks did not agree on a step to save at in time.",
     "Check that a trainer runs on every rank and reports its steps by `client.report_step`, then save again."},
    {Reason::kSaveInProgress, "SAVE_IN_PROGRESS", absl::StatusCode::kUnavailable,
     "Another save of the job holds the staging buffers.",
     "Wait until it has ended, then save again; `cairn status JOB` shows it."},
    {Reason::kSaveCancelled, "SAVE_CANCELLED", absl::StatusCode::kCancelled, "The save was cancelled.",
     "Save again if you want the checkpoint; earlier ones stay as they are."},
    {Reason::kSuperseded, "SUPERSEDED", absl::StatusCode::kAborted, "A later save of the job made this one pointless.",
     "Wait for the later one."},
    {Reason::kCoordinatorRestarted, "COORDINATOR_RESTARTED", absl::StatusCode::kAborted,
     "The coordinator restarted and could not continue the operation.", "Try again."},
    {Reason::kNotCommitted, "NOT_COMMITTED", absl::StatusCode::kNotFound, "The step has no committed checkpoint.",
     "`cairn list JOB` shows the committed steps; a job that has none yet starts without a load."},
    {Reason::kLastCheckpoint, "LAST_CHECKPOINT", absl::StatusCode::kFailedPrecondition,
     "The job has no other valid checkpoint, so this one is not deleted.",
     "Save another step first. If nobody needs the job any more, stop its coordinator and remove the job's directory "
     "below --root."},
    {Reason::kCheckpointPinned, "CHECKPOINT_PINNED", absl::StatusCode::kFailedPrecondition,
     "The checkpoint has a pin or a tag, so it is neither deleted nor overwritten.",
     "If nobody needs the pin, run `cairn unpin JOB@STEP` first; for a tag `cairn untag JOB@NAME`."},
    {Reason::kCheckpointInUse, "CHECKPOINT_IN_USE", absl::StatusCode::kFailedPrecondition,
     "The checkpoint is being loaded, so it is not deleted.",
     "Try again when the load has ended; `cairn status JOB` shows it."},
    {Reason::kRetentionUnreadable, "RETENTION_UNREADABLE", absl::StatusCode::kDataLoss,
     "The job's retention policy cannot be read, so nothing is deleted by it.",
     "Set it again by `cairn retention JOB`."},
    {Reason::kJobNotFound, "JOB_NOT_FOUND", absl::StatusCode::kNotFound,
     "No agent of this job is registered, and it has no checkpoint.",
     "`cairn jobs` lists the jobs that the coordinator knows; check the job's name and the coordinator's address."},
    {Reason::kPlanUnknown, "PLAN_UNKNOWN", absl::StatusCode::kNotFound, "No layout or plan with this digest is known.",
     "Nothing: the sender uploads it again."},
    {Reason::kChecksumMismatch, "CHECKSUM_MISMATCH", absl::StatusCode::kDataLoss,
     "Bytes on disk are not those that were written.",
     "Run `cairn verify JOB@STEP --root ROOT`, which names all that is damaged; load an earlier step."},
    {Reason::kFingerprintMismatch, "FINGERPRINT_MISMATCH", absl::StatusCode::kDataLoss,
     "What a load has put into the program's arrays is not what was saved.",
     "Do not train with it: load again. If the same tensors differ again, run `cairn verify JOB@STEP --root ROOT` and "
     "look at the host that the error names."},
    {Reason::kFileTruncated, "FILE_TRUNCATED", absl::StatusCode::kDataLoss,
     "A file is shorter or longer than the manifest says.",
     "Run `cairn verify JOB@STEP --root ROOT`, which names all that is damaged; load an earlier step."},
    {Reason::kFileMissing, "FILE_MISSING", absl::StatusCode::kDataLoss, "A file of a committed checkpoint is gone.",
     "Run `cairn verify JOB@STEP --root ROOT`, which names all that is damaged; load an earlier step."},
    {Reason::kRootMissing, "ROOT_MISSING", absl::StatusCode::kNotFound, "There is no directory at the root's path.",
     "Correct --root, or make the directory; every agent and the coordinator must see it."},
    {Reason::kBadSafetensors, "BAD_SAFETENSORS", absl::StatusCode::kDataLoss, "A file is not valid safetensors.",
     "Run `cairn verify JOB@STEP --root ROOT`, which names all that is damaged; load an earlier step."},
    {Reason::kBadForeignFile, "BAD_FOREIGN_FILE", absl::StatusCode::kDataLoss,
     "A file of another library's checkpoint does not follow its format.",
     "Open it with the library that wrote it to see whether it is damaged. If so, use another copy or an earlier "
     "step."},
    {Reason::kManifestCorrupt, "MANIFEST_CORRUPT", absl::StatusCode::kDataLoss,
     "A manifest cannot be read or fails its checksum.",
     "Stop the coordinator and run `cairn repair JOB@STEP --root ROOT`, which rebuilds the manifest if all bins are "
     "undamaged; else load an earlier step."},
    {Reason::kFormatTooNew, "FORMAT_TOO_NEW", absl::StatusCode::kFailedPrecondition,
     "A newer version of Cairn wrote this.", "Use that version or a later one."},
    {Reason::kNoSpace, "NO_SPACE", absl::StatusCode::kResourceExhausted, "The file system or a quota is full.",
     "Free space, for example by `cairn delete` of old steps; `cairn doctor --root ROOT` says how many more "
     "checkpoints "
     "fit. The last valid checkpoint is never deleted, so a root needs room for one more beside it. The files of a "
     "failed "
     "save are removed when its agents have stopped, and those of a deleted step when no load can read them: that may "
     "take two leases, 20 s by default."},
    {Reason::kStorageReadOnly, "STORAGE_READ_ONLY", absl::StatusCode::kFailedPrecondition,
     "The storage cannot be written.", "Mount it writable, or correct its permissions."},
    {Reason::kStorageError, "STORAGE_ERROR", absl::StatusCode::kUnavailable, "The storage failed with another error.",
     "Look at the system's error in the message, and at the file system."},
    {Reason::kFsyncFailed, "FSYNC_FAILED", absl::StatusCode::kDataLoss,
     "The storage lost data that it had accepted, so the file was discarded.", "Check the disk, then try again."},
    {Reason::kNoAtomicCreate, "NO_ATOMIC_CREATE", absl::StatusCode::kFailedPrecondition,
     "The file system has neither link nor rename-without-replace, so a commit could not be made safe.",
     "Use another file system for --root."},
    {Reason::kPathEscape, "PATH_ESCAPE", absl::StatusCode::kInvalidArgument, "A path leads out of its directory.",
     "Remove symbolic links and '..' below --root."},
    {Reason::kRootInUse, "ROOT_IN_USE", absl::StatusCode::kFailedPrecondition, "Another coordinator serves this root.",
     "Stop the other coordinator first (kill it if it is frozen), or give this one another --root."},
    {Reason::kRootMismatch, "ROOT_MISMATCH", absl::StatusCode::kFailedPrecondition,
     "Coordinator and agent see different storage below their roots, or an attempt's directory belongs to another "
     "attempt.",
     "Mount the same storage at --root on the machines named, then restart the agents there."},
    {Reason::kStorageStalled, "STORAGE_STALLED", absl::StatusCode::kUnavailable,
     "The coordinator's storage has not answered for --storage-timeout. The outcome of a save that is COMMITTING is "
     "not known yet.",
     "Look at the file system of --root. When it answers, a save that is COMMITTING ends by itself. Do not delete "
     "files of the step."},
    {Reason::kCommitUnproven, "COMMIT_UNPROVEN", absl::StatusCode::kFailedPrecondition,
     "An outcome is so damaged that nothing proves that the step was committed.",
     "If you know that it was, run `cairn repair JOB@STEP --root ROOT --assume-committed`."},
    {Reason::kMemoryLimit, "MEMORY_LIMIT", absl::StatusCode::kResourceExhausted,
     "There is no memory, thread or file descriptor left within --memory-budget or a limit of the container or "
     "process.",
     "Raise what the message names: --memory-budget, the container's memory or pids, ulimit -n, -u or -v."},
    {Reason::kMemoryUnsealed, "MEMORY_UNSEALED", absl::StatusCode::kFailedPrecondition,
     "Another process could still write to memory that an agent offers for reading, so it is not read.",
     "Use agents of this version, on Linux 5.3 or newer."},
    {Reason::kSocketDirectory, "SOCKET_DIRECTORY", absl::StatusCode::kFailedPrecondition,
     "The directory of the local socket cannot be used.", "Give a directory that this user owns with mode 0700."},
    {Reason::kPeerUid, "PEER_UID", absl::StatusCode::kPermissionDenied,
     "A process of another user connected to the local socket, or requests files that the agent may only read for "
     "its own user.",
     "Run trainer and agent as one user, or start the agent with --allow-uid; for imports also --import-root."},
    {Reason::kBadToken, "BAD_TOKEN", absl::StatusCode::kUnauthenticated,
     "The token is missing or wrong, or the other side does not prove that it knows the token.",
     "Run as the coordinator's user, or give all parts the same --token-file (<root>/.cairn/token is one)."},
    {Reason::kNotLoopback, "NOT_LOOPBACK", absl::StatusCode::kFailedPrecondition,
     "An address other than loopback needs a token.", "Start with --token-file, or listen on 127.0.0.1."},
    {Reason::kCoordinatorUnreachable, "COORDINATOR_UNREACHABLE", absl::StatusCode::kUnavailable,
     "The coordinator did not answer.",
     "Check --coordinator or CAIRN_COORDINATOR, and that the coordinator runs. Its log says why it ended."},
    {Reason::kOverloaded, "OVERLOADED", absl::StatusCode::kResourceExhausted,
     "The coordinator is too busy at this moment; its answer says when to call again.",
     "Agents call again by themselves. If this continues, give the coordinator more processors, or its jobs longer "
     "leases."},
    {Reason::kAgentUnreachable, "AGENT_UNREACHABLE", absl::StatusCode::kUnavailable, "The agent did not answer.",
     "Check the agent's address (trainers: CAIRN_AGENT), and that the agent runs. Its log says why it ended."},
    {Reason::kTransportFailed, "TRANSPORT_FAILED", absl::StatusCode::kUnavailable,
     "Bytes could not be exchanged between two agents.", "Look at both agents' logs and the network between them."},
    {Reason::kTimedOut, "TIMED_OUT", absl::StatusCode::kDeadlineExceeded,
     "The caller's own timeout passed; the outcome is unknown.", "`cairn status JOB` says how it goes on."},
    {Reason::kInterrupted, "INTERRUPTED", absl::StatusCode::kCancelled, "The command was interrupted.",
     "Run it again if you still want it."},
    {Reason::kDeviceError, "DEVICE_ERROR", absl::StatusCode::kUnavailable,
     "A call of the GPU's driver failed, or there is no driver for an array that is on a GPU.",
     "Look at what the message names. After CUDA_ERROR_ILLEGAL_ADDRESS or a launch failure restart the trainer: its "
     "context is broken."},
    {Reason::kDeviceStalled, "DEVICE_STALLED", absl::StatusCode::kDeadlineExceeded,
     "The GPU's driver did not finish a copy, or did not pin memory, in time.",
     "Save again, with a larger timeout if the GPU is busy. If it happens again, look at the GPU with nvidia-smi "
     "and restart the trainer."},
    {Reason::kTornSnapshot, "TORN_SNAPSHOT", absl::StatusCode::kAborted,
     "A tensor changed on the GPU while a save copied it: the checksums of GPU and copy differ. Nothing was "
     "committed.",
     "In a save with overlap=, call saving.before_update() before any change of the tensor outside of its "
     "optimizer's step. In another save change nothing until save() returns."},
    {Reason::kNcclUnavailable, "NCCL_UNAVAILABLE", absl::StatusCode::kFailedPrecondition,
     "An agent has --nccl=require (or --nccl-saves=require, for a save), and an operation cannot use NCCL.",
     "Mend what the message says, or give the agents --nccl=auto (--nccl-saves=auto)."},
    {Reason::kInternal, "INTERNAL", absl::StatusCode::kInternal, "A bug in Cairn.", "Report it with the log."},
    {Reason::kMappingSyntax, "MAPPING_SYNTAX", absl::StatusCode::kInvalidArgument,
     "A mapping statement cannot be parsed.", "Correct the statement at the named position."},
    {Reason::kMappingMacro, "MAPPING_MACRO", absl::StatusCode::kInvalidArgument,
     "A macro of a mapping cannot be expanded.", "Correct the statement as the message says."},
    {Reason::kMappingUnknownName, "MAPPING_UNKNOWN_NAME", absl::StatusCode::kNotFound,
     "A mapping names a tensor that does not exist.", "Correct the name; the message suggests similar ones."},
    {Reason::kMappingShape, "MAPPING_SHAPE", absl::StatusCode::kInvalidArgument,
     "Shapes do not fit a mapping's operation.", "Correct axis, sizes or permutation."},
    {Reason::kMappingDtype, "MAPPING_DTYPE", absl::StatusCode::kInvalidArgument,
     "Dtypes do not fit a mapping's operation.", "Add the cast that the message names."},
    {Reason::kMappingUncovered, "MAPPING_UNCOVERED", absl::StatusCode::kFailedPrecondition,
     "Target names come from no statement and from no source tensor.", "Map them, or add them with `_ -> name`."},
    {Reason::kMappingRange, "MAPPING_RANGE", absl::StatusCode::kOutOfRange,
     "A target reaches outside the tensor that a mapping gives it, or has another global shape.",
     "Look for a missing transpose or a wrong number of shards."},
    {Reason::kInputUnreadable, "INPUT_UNREADABLE", absl::StatusCode::kNotFound, "An input file cannot be read.",
     "Check the path and its permissions."},
    {Reason::kBadJsonLine, "BAD_JSON_LINE", absl::StatusCode::kInvalidArgument, "A line is not JSON, or lacks the key.",
     "Correct the named line. If the input is plain text, turn it into JSON lines first: docs/corpus.md has the "
     "command."},
    {Reason::kInvalidUtf8, "INVALID_UTF8", absl::StatusCode::kInvalidArgument,
     "Text is not valid UTF-8 and the policy is to stop.",
     "Correct the text, or choose another --invalid-utf8 policy."},
    {Reason::kBadTokenizer, "BAD_TOKENIZER", absl::StatusCode::kInvalidArgument, "A tokenizer's files cannot be used.",
     "Check the named files."},
    {Reason::kBadPattern, "BAD_PATTERN", absl::StatusCode::kInvalidArgument,
     "A regular expression cannot be compiled or matches too much.", "Correct the expression."},
    {Reason::kIndexCorrupt, "INDEX_CORRUPT", absl::StatusCode::kDataLoss,
     "An .idx file is not valid or does not fit its .bin.", "Make the pair again."},
    {Reason::kOutputExists, "OUTPUT_EXISTS", absl::StatusCode::kAlreadyExists, "The output already exists.",
     "Remove it, or choose another name."},
};

// Makes untrusted names in a message printable. Line breaks stay.
std::string Shown(std::string_view text, size_t bytes) {
  return std::string(CutText(Printable(CutText(text, bytes), "\n\t"), bytes));
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

google::rpc::ErrorInfo Payload(const absl::Status& status) {
  google::rpc::ErrorInfo info;
  const auto payload = status.GetPayload(kPayloadUrl);
  if (payload.has_value()) info.ParseFromString(std::string(*payload));
  return info;
}

absl::Status WithPayload(absl::StatusCode code, std::string_view message, const google::rpc::ErrorInfo& info) {
  absl::Status status(code, View(Shown(message, kMaxMessageBytes)));
  // Serializes deterministically (maps have no order otherwise), so that equal errors have equal bytes.
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    info.SerializeToCodedStream(&coded);
  }
  status.SetPayload(kPayloadUrl, absl::Cord(std::move(bytes)));
  return status;
}

void AddMetadata(const ErrorMetadata& metadata, google::rpc::ErrorInfo& info) {
  size_t room = kMaxMetadataBytes;
  for (const auto& [key, value] : info.metadata()) room -= std::min(room, key.size() + value.size());
  for (const auto& [key, value] : metadata) {
    if (key.size() >= room) break;
    const std::string kept = Shown(value, room - key.size());
    (*info.mutable_metadata())[key] = kept;
    room -= key.size() + kept.size();
  }
}

}  // namespace

std::span<const ReasonInfo> ReasonTable() { return kTable; }

const ReasonInfo& InfoOf(Reason reason) { return kTable[static_cast<size_t>(reason)]; }

std::optional<Reason> ReasonFromName(std::string_view name) {
  for (const ReasonInfo& info : kTable) {
    if (info.name == name) return info.reason;
  }
  return std::nullopt;
}

absl::Status MakeError(Reason reason, std::string_view message, const ErrorMetadata& metadata) {
  const ReasonInfo& row = InfoOf(reason);
  google::rpc::ErrorInfo info;
  info.set_reason(std::string(row.name));
  info.set_domain(std::string(kErrorDomain));
  AddMetadata(metadata, info);
  return WithPayload(row.code, message, info);
}

std::optional<Reason> ReasonOf(const absl::Status& status) {
  if (status.ok()) return std::nullopt;
  const google::rpc::ErrorInfo info = Payload(status);
  if (info.domain() != kErrorDomain) return std::nullopt;
  return ReasonFromName(info.reason());
}

std::map<std::string, std::string> MetadataOf(const absl::Status& status) {
  const google::rpc::ErrorInfo info = Payload(status);
  return {info.metadata().begin(), info.metadata().end()};
}

absl::Status Annotate(const absl::Status& status, std::string_view prefix, const ErrorMetadata& more) {
  if (status.ok()) return status;
  google::rpc::ErrorInfo info = Payload(status);
  const std::string message = absl::StrCat(View(prefix), ": ", status.message());
  if (info.reason().empty()) return absl::Status(status.code(), message);
  AddMetadata(more, info);
  return WithPayload(status.code(), message, info);
}

absl::Status WithMetadata(const absl::Status& status, const ErrorMetadata& more) {
  google::rpc::ErrorInfo info = Payload(status);
  if (info.reason().empty()) return status;
  ErrorMetadata absent;
  for (const auto& entry : more) {
    if (!info.metadata().contains(entry.first)) absent.push_back(entry);
  }
  AddMetadata(absent, info);
  return WithPayload(status.code(), std::string(status.message()), info);
}

std::string NextActionOf(const absl::Status& status) {
  const std::optional<Reason> reason = ReasonOf(status);
  if (!reason.has_value()) return "";
  const std::map<std::string, std::string> metadata = MetadataOf(status);
  const auto value = [&](const std::string& key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
  };
  if (const std::string next = value("next"); !next.empty()) return next;
  std::vector<std::pair<std::string, std::string>> words;
  const std::string job = value("job"), step = value("step"), root = value("root");
  if (!job.empty()) words.emplace_back("JOB@STEP", absl::StrCat(job, "@", step.empty() ? "STEP" : step));
  if (!job.empty()) words.emplace_back(" JOB`", absl::StrCat(" ", job, "`"));
  if (!root.empty()) words.emplace_back("--root ROOT", absl::StrCat("--root ", ForShell(root)));
  return absl::StrReplaceAll(std::string(InfoOf(*reason).next_action), words);
}

std::string JoinRanks(std::span<const int> ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size() && i < kMaxRanks; ++i) absl::StrAppend(&text, i == 0 ? "" : ", ", ranks[i]);
  if (ranks.size() > kMaxRanks) absl::StrAppend(&text, " and ", ranks.size() - kMaxRanks, " more");
  return text;
}

}  // namespace cairn
