#include "cli/client/coordinator_client.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/base/interrupt.h"
#include "cli/base/terminal.h"
#include "cli/local/run_directory.h"
#include "common/base/clock.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::cli {
namespace {

// One response describes a whole job with all ranks: 1.6 MB for 16,384 ranks with short node names.
constexpr int kMaxViewBytes = 256 << 20;

// A coordinator on this machine that does not answer within this time is ignored.
constexpr absl::Duration kAnswerHere = absl::Seconds(2);

}  // namespace

absl::StatusOr<std::string> CoordinatorClient::FindHere(const CommandContext& context, const std::string& job) {
  std::vector<RunDirectory::Running> running = RunDirectory::RunningCoordinators();
  if (running.size() > 1 && !job.empty()) {
    // The directory names the job for which the coordinator was started. The coordinator may serve other jobs too.
    std::vector<RunDirectory::Running> knowing;
    for (const RunDirectory::Running& each : running) {
      const auto client = ConnectTo(context, each.address);
      v1::GetJobRequest request;
      request.set_job(job);
      v1::Job found;
      if (client.ok() &&
          (*client)
              ->Call(&v1::CheckpointService::Stub::GetJob, request, &found, absl::ZeroDuration(), kAnswerHere)
              .ok()) {
        knowing.push_back(each);
      }
    }
    if (!knowing.empty()) running = std::move(knowing);
  }
  if (running.size() == 1) {
    static std::string told;  // a command may ask it several times
    if (!context.json() && std::exchange(told, running[0].address) != running[0].address) {
      std::fprintf(stderr, "%s asking the coordinator of job %s that runs here, %s\n",
                   Coloured(stderr, Colour::kDim, "note:").c_str(), running[0].job.c_str(), running[0].address.c_str());
    }
    return running[0].address;
  }
  std::string here;
  for (const RunDirectory::Running& each : running) {
    absl::StrAppend(&here, here.empty() ? "Here run those of " : ", ", each.job, " (", each.address, ")");
  }
  return MakeError(Reason::kBadRequest,
                   "no coordinator was given: use --coordinator HOST:PORT or set CAIRN_COORDINATOR",
                   {{"option", "--coordinator"},
                    {"next", absl::StrCat(here.empty() ? "`cairn up` and `cairn run` print the address" : here,
                                          ". Where no coordinator runs, list, show, jobs, history, verify, diff and "
                                          "export read storage with --root DIR.")}});
}

absl::StatusOr<std::unique_ptr<CoordinatorClient>> CoordinatorClient::Connect(const CommandContext& context,
                                                                              const std::string& job) {
  if (!context.coordinator.empty()) return ConnectTo(context, context.coordinator);
  CAIRN_ASSIGN_OR_RETURN(const std::string address, FindHere(context, job));
  return ConnectTo(context, address);
}

absl::StatusOr<std::unique_ptr<CoordinatorClient>> CoordinatorClient::ConnectTo(const CommandContext& context,
                                                                                const std::string& address) {
  // A coordinator's token is also below its root, in case this user's TokenDirectory does not have it.
  std::string root;
  for (const RunDirectory::Running& each : RunDirectory::RunningCoordinators()) {
    if (each.address == address) root = each.root;
  }
  CAIRN_ASSIGN_OR_RETURN(
      auto tokens,
      TokenSource::Open(
          {.insecure = context.insecure, .file = context.token_file, .address = address, .root = std::move(root)}));
  return std::unique_ptr<CoordinatorClient>(new CoordinatorClient(address, std::move(tokens)));
}

CoordinatorClient::CoordinatorClient(const std::string& address, std::shared_ptr<TokenSource> tokens)
    : tokens_(std::move(tokens)),
      peer_(std::make_shared<PeerChannel>(PeerOptions{.address = address,
                                                      .role = ServerRole::kCoordinator,
                                                      .tokens = tokens_,
                                                      .plain_without_token = true,
                                                      .max_message_bytes = kMaxViewBytes})) {}

absl::Status CoordinatorClient::Try(const TryCall& call) {
  CAIRN_ASSIGN_OR_RETURN(const PeerChannel::Channel channel, peer_->Await());
  const absl::Status status = call(channel);
  if (HasReason(status, Reason::kCoordinatorUnreachable)) peer_->Renew();
  if (!HasReason(status, Reason::kBadToken)) return status;
  // The call was made without a token. There may be a token now.
  peer_->Renew();
  return tokens_->Reload() ? Try(call) : tokens_->Explain(status);
}

absl::Status CoordinatorClient::Retry(absl::Duration patience, const TryCall& call) {
  const absl::Time deadline = Clock::Real().SteadyNow() + patience;
  for (;;) {
    absl::Status status = Try(call);
    if (InterruptFlag()) return MakeError(Reason::kInterrupted, "interrupted");
    if (!HasReason(status, Reason::kCoordinatorUnreachable) || Clock::Real().SteadyNow() >= deadline) return status;
    absl::SleepFor(absl::Milliseconds(300));
  }
}

void RefuseRootToLook(Command& command) {
  command.RefuseOption("--root",
                       "it shows what a coordinator knows (--coordinator). Where none runs, `cairn list`, show, jobs, "
                       "history, verify and diff read storage with --root");
}

void RefuseRootToChange(Command& command) {
  command.RefuseOption("--root",
                       "checkpoints are changed by the coordinator of their root (--coordinator). Where none runs, "
                       "`cairn run --root DIR -- cairn ...` starts one for as long as this command takes; to look "
                       "only, `cairn list` and show take --root");
}

absl::Status WithOwnCoordinator(const absl::Status& status) {
  const bool none_given = HasReason(status, Reason::kBadRequest) && MetadataOf(status)["option"] == "--coordinator";
  if (!none_given && !HasReason(status, Reason::kCoordinatorUnreachable)) return status;
  return WithNext(status, absl::StrCat(NextActionOf(status),
                                       " If none runs for the root, put `cairn run --root DIR -- ` before this command",
                                       none_given ? "" : " and omit --coordinator",
                                       ": that starts one for as long as the command takes."));
}

absl::StatusOr<CheckpointList> ListWithMirror(CoordinatorClient& client, const std::string& job) {
  CheckpointList listed;
  v1::ListCheckpointsRequest request;
  request.set_job(job);
  do {
    v1::ListCheckpointsResponse response;
    CAIRN_RETURN_IF_ERROR(client.Call(&v1::CheckpointService::Stub::ListCheckpoints, request, &response));
    listed.checkpoints.insert(listed.checkpoints.end(), response.checkpoints().begin(), response.checkpoints().end());
    if (response.has_mirror()) listed.mirror = response.mirror();
    listed.only_at_mirror.assign(response.mirror_only_checkpoints().begin(), response.mirror_only_checkpoints().end());
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return listed;
}

const v1::Checkpoint* LatestOf(const CheckpointList& listed) {
  const v1::Checkpoint* latest = nullptr;
  for (const auto* steps : {&listed.checkpoints, &listed.only_at_mirror}) {
    for (const v1::Checkpoint& one : *steps) {
      if (one.state() == v1::Phase::COMMITTED && (latest == nullptr || one.step() > latest->step())) latest = &one;
    }
  }
  return latest;
}

absl::StatusOr<std::vector<v1::Checkpoint>> ListCheckpoints(CoordinatorClient& client, const std::string& job) {
  CAIRN_ASSIGN_OR_RETURN(CheckpointList listed, ListWithMirror(client, job));
  return std::move(listed.checkpoints);
}

absl::StatusOr<std::optional<v1::Checkpoint>> LastCommitted(CoordinatorClient& client, const std::string& job) {
  v1::GetCheckpointRequest request;
  request.set_job(job);
  v1::Checkpoint checkpoint;
  const absl::Status status = client.Call(&v1::CheckpointService::Stub::GetCheckpoint, request, &checkpoint);
  if (HasReason(status, Reason::kNotCommitted)) return std::nullopt;
  CAIRN_RETURN_IF_ERROR(status);
  return checkpoint;
}

}  // namespace cairn::cli
