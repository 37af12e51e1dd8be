#include "cli/list_command.h"

#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/checkpoint_view.h"
#include "cli/coordinator_client.h"
#include "cli/manifest_view.h"
#include "cli/terminal.h"
#include "common/base/quantity.h"
#include "common/base/status.h"
#include "common/rpc/reason.h"
#include "common/storage/checkpoint_path.h"
#include "common/storage/checkpoint_store.h"

namespace cairn::cli {
namespace {

struct Arguments {
  std::string name;
  std::string root;
  bool tensors = false;
  bool files = false;
};

void AddRow(Table& table, const nlohmann::ordered_json& row) {
  table.Add({absl::StrCat(row["step"].get<int64_t>()), row["commit_time"].get<std::string>(),
             FormatSize(row["bytes"].get<int64_t>()), absl::StrCat(row["world_size"].get<int64_t>()),
             absl::StrCat(row["attempt"].get<int64_t>())});
}

absl::StatusOr<std::vector<nlohmann::ordered_json>> ListFromCoordinator(const CommandContext& context,
                                                                        const std::string& job) {
  CAIRN_ASSIGN_OR_RETURN(const auto client, CoordinatorClient::Connect(context));
  std::vector<nlohmann::ordered_json> rows;
  v1::ListCheckpointsRequest request;
  request.set_job(job);
  do {
    v1::ListCheckpointsResponse response;
    CAIRN_RETURN_IF_ERROR(client->Call(&v1::CheckpointService::Stub::ListCheckpoints, request, &response));
    for (const v1::Checkpoint& checkpoint : response.checkpoint()) rows.push_back(CommittedToJson(checkpoint));
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return rows;
}

absl::Status List(CommandContext& context, const Arguments& arguments) {
  CAIRN_RETURN_IF_ERROR(CheckJobName(arguments.name));
  std::vector<nlohmann::ordered_json> rows;
  std::vector<absl::Status> faults;
  if (arguments.root.empty()) {
    CAIRN_ASSIGN_OR_RETURN(rows, ListFromCoordinator(context, arguments.name));
  } else {
    CAIRN_ASSIGN_OR_RETURN(const auto storage, PosixStorage::Open(arguments.root, false));
    CAIRN_ASSIGN_OR_RETURN(auto committed, CheckpointStore(*storage).ListCommitted(arguments.name));
    for (const Manifest& manifest : committed.manifests) rows.push_back(SummaryToJson(manifest));
    faults = std::move(committed.faults);
  }
  if (context.json()) {
    std::printf("%s\n", nlohmann::ordered_json{{"checkpoints", rows}}.dump(2).c_str());
  } else if (rows.empty()) {
    std::printf("%s has no committed checkpoint\n", arguments.name.c_str());
  } else {
    Table table({"STEP", "COMMITTED", "BYTES", "RANKS", "ATTEMPT"});
    for (const auto& row : rows) AddRow(table, row);
    table.Print(stdout);
  }
  // What can be read is shown; what cannot is told, and makes the command fail.
  for (const absl::Status& fault : faults) context.exit_status = ReportError(context, fault);
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
  Command command = app.AddCommand("list", "Lists a job's committed checkpoints");
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
