#include "cli/client/stored_checkpoint.h"

#include <cstdio>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "cli/base/terminal.h"
#include "cli/client/named_step.h"
#include "common/format/outcome.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/open/open_storage.h"
#include "store/read/checkpoint_store.h"

namespace cairn::cli {
namespace {

absl::StatusOr<Manifest> Fetch(CoordinatorClient& client, const CheckpointName& name) {
  CAIRN_ASSIGN_OR_RETURN(const CheckpointName named, WithoutTag(client, name));
  std::string bytes;
  v1::GetManifestRequest request;
  request.set_job(named.job);
  if (named.step) request.set_step(*named.step);
  for (;;) {
    v1::GetManifestResponse response;
    request.set_offset(bytes.size());
    CAIRN_RETURN_IF_ERROR(client.Call(&v1::CheckpointService::Stub::GetManifest, request, &response));
    // The following requests name the step, because a later one may be committed while the chunks are fetched.
    request.set_step(response.step());
    bytes += response.chunk();
    if (bytes.size() >= response.total_bytes() || bytes.size() > kMaxOutcomeBytes) break;
    if (response.chunk().empty()) return MakeError(Reason::kInternal, "the coordinator sent an empty chunk");
  }
  CAIRN_ASSIGN_OR_RETURN(Outcome outcome, DecodeOutcome(bytes));
  if (auto* manifest = std::get_if<Manifest>(&outcome)) return std::move(*manifest);
  return MakeError(Reason::kNotCommitted, absl::StrCat(named.job, ": the checkpoint was deleted meanwhile"),
                   {{"job", named.job}});
}

absl::Status NotSeen(const FetchedManifest& fetched, const std::string& what) {
  return MakeError(Reason::kRootMismatch,
                   absl::StrCat("this machine does not see ", fetched.root, ", the root of the coordinator at ",
                                fetched.address, ": ", what),
                   {{"root", fetched.root},
                    {"address", fetched.address},
                    {"next", "Run this on a machine that sees it, or give --root DIR, where it is on this one."}});
}

absl::StatusOr<StoredCheckpoint> OpenBelow(const std::string& root, const CheckpointName& name) {
  StoredCheckpoint stored;
  CAIRN_ASSIGN_OR_RETURN(stored.storage, OpenStorageOfJob(root, name.job));
  CheckpointStore store(*stored.storage);
  CAIRN_ASSIGN_OR_RETURN(const std::optional<int64_t> step, store.StepOf(name));
  CAIRN_ASSIGN_OR_RETURN(stored.manifest, store.ReadManifest(name.job, step));
  return stored;
}

}  // namespace

absl::StatusOr<FetchedManifest> FetchManifest(CoordinatorClient& client, const CheckpointName& name) {
  v1::Capabilities capabilities;
  CAIRN_RETURN_IF_ERROR(
      client.Call(&v1::CheckpointService::Stub::GetCapabilities, v1::GetCapabilitiesRequest(), &capabilities));
  FetchedManifest fetched{{}, capabilities.root(), client.address()};
  absl::StatusOr<Manifest> manifest = Fetch(client, name);
  if (!manifest.ok()) return WithMetadata(manifest.status(), {{"root", fetched.root}});
  fetched.manifest = *std::move(manifest);
  return fetched;
}

absl::StatusOr<std::unique_ptr<Storage>> OpenHere(const FetchedManifest& fetched) {
  const Manifest& manifest = fetched.manifest;
  auto storage = OpenStorage(fetched.root, /*create=*/false);
  if (HasReason(storage.status(), Reason::kRootMissing)) return NotSeen(fetched, "there is no such directory");
  CAIRN_RETURN_IF_ERROR(storage.status());
  const auto here = CheckpointStore(**storage).ReadManifest(manifest.job, manifest.step);
  if (here.ok() ? *here != manifest : HasReason(here.status(), Reason::kNotCommitted)) {
    return NotSeen(fetched, absl::StrCat("what is there does not have the coordinator's ", manifest.job, "@",
                                         manifest.step, ", so another storage is mounted at this path"));
  }
  CAIRN_RETURN_IF_ERROR(here.status());
  return storage;
}

std::optional<OnlyAtMirror> FindOnlyAtMirror(CoordinatorClient& client, const CheckpointName& name,
                                             const absl::StatusOr<FetchedManifest>& fetched) {
  if (name.step.has_value() ? !HasReason(fetched.status(), Reason::kNotCommitted)
                            : !fetched.ok() && !HasReason(fetched.status(), Reason::kNotCommitted)) {
    return std::nullopt;
  }
  const auto listed = ListWithMirror(client, name.job);
  if (!listed.ok() || !listed->mirror.has_value()) return std::nullopt;
  const v1::Checkpoint* const latest = LatestOf(*listed);
  for (const v1::Checkpoint& one : listed->only_at_mirror) {
    const bool meant = name.step.has_value() ? one.step() == *name.step : latest == &one;
    if (meant) return OnlyAtMirror{listed->mirror->address(), one};
  }
  return std::nullopt;
}

absl::StatusOr<StoredCheckpoint> OpenAtMirror(const CommandContext& context, const OnlyAtMirror& found) {
  const std::string name = absl::StrCat(found.listed.job(), "@", found.listed.step());
  CheckpointName named;
  named.job = found.listed.job();
  named.step = found.listed.step();
  auto stored = OpenBelow(found.address, named);
  if (!stored.ok()) {
    return Annotate(stored.status(), absl::StrCat("only the mirror ", found.address, " has ", name),
                    {{"root", found.address},
                     {"next", absl::StrCat("Run this on a machine that sees the mirror; give --root if it has another ",
                                           "name there.")}});
  }
  if (!context.json()) {
    std::fprintf(stderr, "%s only the mirror %s has %s\n", Coloured(stderr, Colour::kDim, "note:").c_str(),
                 ForTerminal(found.address).c_str(), name.c_str());
  }
  return stored;
}

absl::StatusOr<StoredCheckpoint> OpenCheckpoint(const CommandContext& context, const CheckpointName& name,
                                                const std::string& root) {
  if (!root.empty()) {
    auto stored = OpenBelow(root, name);
    if (!stored.ok()) return WithMetadata(stored.status(), {{"root", root}});
    return stored;
  }
  CAIRN_ASSIGN_OR_RETURN(const auto client, CoordinatorClient::Connect(context, name.job));
  CAIRN_ASSIGN_OR_RETURN(const CheckpointName named, WithoutTag(*client, name));
  absl::StatusOr<FetchedManifest> fetched = FetchManifest(*client, named);
  if (const auto there = FindOnlyAtMirror(*client, named, fetched); there.has_value()) {
    return OpenAtMirror(context, *there);
  }
  CAIRN_RETURN_IF_ERROR(fetched.status());
  auto storage = OpenHere(*fetched);
  if (!storage.ok()) return WithMetadata(storage.status(), {{"root", fetched->root}});
  return StoredCheckpoint{*std::move(storage), std::move(fetched->manifest)};
}

std::string MirrorWithCopy(const CommandContext& context, const std::string& job, int64_t step) {
  const auto client = CoordinatorClient::Connect(context, job);
  if (!client.ok()) return "";
  const auto listed = ListWithMirror(**client, job);
  if (!listed.ok() || !listed->mirror.has_value()) return "";
  for (const v1::Checkpoint& one : listed->checkpoints) {
    if (one.step() == step && one.mirror().state() == v1::MirroredCheckpoint::MIRRORED)
      return listed->mirror->address();
  }
  return "";
}

}  // namespace cairn::cli
