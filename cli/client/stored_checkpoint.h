// Opens a checkpoint whose files a command reads itself: below --root, or below the root of the coordinator that the
// other commands would ask.
#ifndef CAIRN_CLI_CLIENT_STORED_CHECKPOINT_H_
#define CAIRN_CLI_CLIENT_STORED_CHECKPOINT_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/base/command.h"
#include "cli/client/coordinator_client.h"
#include "common/format/checkpoint_path.h"
#include "common/format/manifest.h"
#include "store/storage/storage.h"

namespace cairn::cli {

// The help of --root of a command that calls OpenCheckpoint.
inline constexpr char kRootToRead[] =
    "The storage (default: the root of the coordinator, of --coordinator or of the one that this user has started here "
    "by `cairn up` or `cairn run`)";

// A manifest as a coordinator gives it.
struct FetchedManifest {
  Manifest manifest;
  std::string root;     // the coordinator's
  std::string address;  // the coordinator's
};

// Fetches the manifest that `name` names. Fails with the errors of the calls; they have the root in their metadata if
// the coordinator has told it.
absl::StatusOr<FetchedManifest> FetchManifest(CoordinatorClient& client, const CheckpointName& name);

// Opens the coordinator's root on this machine. FAILED_PRECONDITION (ROOT_MISMATCH): this machine does not see it:
// there is no such directory, or the same manifest is not below it, so that another storage is mounted at this path.
// Else the errors of storage.
absl::StatusOr<std::unique_ptr<Storage>> OpenHere(const FetchedManifest& fetched);

struct StoredCheckpoint {
  std::unique_ptr<Storage> storage;
  Manifest manifest;
};

// A checkpoint that a coordinator's root has not, and its mirror has.
struct OnlyAtMirror {
  std::string address;  // the mirror's
  v1::Checkpoint listed;
};
// Returns it if `name`, which has no tag, means one, and `fetched` is what FetchManifest has returned for it. JOB alone
// means the latest checkpoint of root and mirror. Nothing if the root has what is meant, or nobody has it.
std::optional<OnlyAtMirror> FindOnlyAtMirror(CoordinatorClient& client, const CheckpointName& name,
                                             const absl::StatusOr<FetchedManifest>& fetched);
// Opens it on this machine, and tells people so. Fails as CheckpointStore::ReadManifest and OpenStorageOfJob; the
// errors say that only the mirror has it.
absl::StatusOr<StoredCheckpoint> OpenAtMirror(const CommandContext& context, const OnlyAtMirror& found);

// Opens the checkpoint below `root`. If `root` is empty, asks the coordinator that CoordinatorClient::Connect finds for
// the checkpoint, and opens its root on this machine, or its mirror if only that has it. Fails as
// CheckpointStore::ReadManifest and OpenStorageOfJob, or as Connect, FetchManifest, OpenHere and OpenAtMirror. Errors
// have the root in their metadata, as soon as it is known.
absl::StatusOr<StoredCheckpoint> OpenCheckpoint(const CommandContext& context, const CheckpointName& name,
                                                const std::string& root);

// Returns the address of the mirror if the coordinator says that it has a copy of the step, which the root has too;
// empty if not, or if nobody knows.
std::string MirrorWithCopy(const CommandContext& context, const std::string& job, int64_t step);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CLIENT_STORED_CHECKPOINT_H_
