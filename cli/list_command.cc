#include "cli/list_command.h"

#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/checkpoint_view.h"
#include "cli/coordinator_client.h"
#include "cli/manifest_view.h"
#include "cli/terminal.h"
#include "common/base/status.h"
#include "common/rpc/reason.h"
#include "common/storage/checkpoint_path.h"
#include "common/storage/checkpoint_store.h"
#include "common/storage/listed_checkpoint.h"

namespace cairn::cli {
namespace {

struct Arguments {
  std::string name;
  std::string root;
  bool tensors = false;
  bool files = false;
};

absl::StatusOr<std::vector<v1::Checkpoint>> ListFromCoordinator(const CommandContext& context, const std::string& job) {
  CAIRN_ASSIGN_OR_RETURN(const auto client, CoordinatorClient::Connect(context));
  std::vector<v1::Checkpoint> listed;
  v1::ListCheckpointsRequest request;
  request.set_job(job);
  do {
    v1::ListCheckpointsResponse response;
    CAIRN_RETURN_IF_ERROR(client->Call(&v1::CheckpointService::Stub::ListCheckpoints, request, &response));
    listed.insert(listed.end(), response.checkpoint().begin(), response.checkpoint().end());
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return listed;
}

absl::StatusOr<std::vector<v1::Checkpoint>> ListFromStorage(const std::string& root, const std::string& job) {
  CAIRN_ASSIGN_OR_RETURN(const auto storage, PosixStorage::Open(root, false));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<StepRecord> steps, CheckpointStore(*storage).ReadCheckpoints(job));
  std::vector<v1::Checkpoint> listed;
  for (const StepRecord& step : steps) listed.push_back(ListedCheckpoint(job, step));
  return listed;
}

absl::Status List(const CommandContext& context, const Arguments& arguments) {
  CAIRN_RETURN_IF_ERROR(CheckJobName(arguments.name));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::Checkpoint> listed,
                         arguments.root.empty() ? ListFromCoordinator(context, arguments.name)
                                                : ListFromStorage(arguments.root, arguments.name));
  if (context.json()) {
    nlohmann::ordered_json json = {{"checkpoints", nlohmann::ordered_json::array()}};
    for (const v1::Checkpoint& checkpoint : listed) json["checkpoints"].push_back(ListedToJson(checkpoint));
    std::printf("%s\n", json.dump(2).c_str());
  } else if (listed.empty()) {
    std::printf("%s has no committed checkpoint\n", arguments.name.c_str());
  } else {
    ListTable(listed).Print(stdout);
  }
  return absl::OkStatus();
}

absl::StatusOr<Manifest> FetchManifest(const CommandContext& context, const CheckpointName& name, std::string& root) {
  CAIRN_ASSIGN_OR_RETURN(const auto client, CoordinatorClient::Connect(context));
  v1::Capabilities capabilities;
  CAIRN_RETURN_IF_ERROR(
      client->Call(&v1::CheckpointService::Stub::GetCapabilities, v1::GetCapabilitiesRequest(), &capabilities));
  root = capabilities.root();
  std::string bytes;
  v1::GetManifestRequest request;
  request.set_job(name.job);
  if (name.step) request.set_step(*name.step);
  for (;;) {
    v1::GetManifestResponse response;
    request.set_offset(bytes.size());
    CAIRN_RETURN_IF_ERROR(client->Call(&v1::CheckpointService::Stub::GetManifest, request, &response));
    // A later step may be committed while the first one is fetched.
    request.set_step(response.step());
    bytes += response.chunk();
    if (bytes.size() >= response.total_bytes() || bytes.size() > kMaxVerdictBytes) break;
    if (response.chunk().empty()) return MakeError(Reason::kInternal, "the coordinator sent an empty chunk");
  }
  CAIRN_ASSIGN_OR_RETURN(Verdict verdict, DecodeVerdict(bytes));
  if (auto* manifest = std::get_if<Manifest>(&verdict)) return std::move(*manifest);
  return MakeError(Reason::kNotCommitted, absl::StrCat(name.job, ": the checkpoint was deleted meanwhile"));
}

absl::Status Show(const CommandContext& context, const Arguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(const CheckpointName name, ParseCheckpointName(arguments.name));
  std::string root = arguments.root;
  absl::StatusOr<Manifest> manifest;
  if (root.empty()) {
    manifest = FetchManifest(context, name, root);
  } else {
    CAIRN_ASSIGN_OR_RETURN(const auto storage, PosixStorage::Open(root, false));
    root = storage->root();
    manifest = CheckpointStore(*storage).ReadManifest(name.job, name.step);
  }
  if (!manifest.ok()) return manifest.status();
  if (context.json()) {
    std::printf("%s\n", ManifestToJson(*manifest, root).dump(2).c_str());
    return absl::OkStatus();
  }
  PrintSummary(*manifest, root);
  if (arguments.tensors) {
    std::printf("\n");
    PrintTensors(*manifest);
  }
  if (arguments.files) {
    std::printf("\n");
    PrintFiles(*manifest);
  }
  return absl::OkStatus();
}

}  // namespace

void AddListCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand("list", "Lists a job's checkpoints: the committed and the damaged ones");
  command.AddOption("JOB", arguments->name, "The job's name").Required();
  command.AddOption("--root", arguments->root, "Read this storage instead of asking a coordinator");
  command.Footer("Examples:\n  cairn list demo\n  cairn list demo --root /checkpoints --format=json");
  command.Action([arguments, &context] {
    const absl::Status status = List(context, *arguments);
    if (!status.ok()) context.exit_status = ReportError(context, status);
  });
}

void AddShowCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand("show", "Shows one checkpoint: tensors, files, who wrote what where");
  command.AddOption("JOB@STEP", arguments->name, "The checkpoint; JOB alone is its latest").Required();
  command.AddOption("--root", arguments->root, "Read this storage instead of asking a coordinator");
  command.AddFlag("--tensors", arguments->tensors, "List the tensors");
  command.AddFlag("--files", arguments->files, "List every item of every file");
  command.Footer("Examples:\n  cairn show demo\n  cairn show demo@1200 --tensors --root /checkpoints");
  command.Action([arguments, &context] { context.exit_status = ReportError(context, Show(context, *arguments)); });
}

}  // namespace cairn::cli
