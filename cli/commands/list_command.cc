#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/base/terminal.h"
#include "cli/client/coordinator_client.h"
#include "cli/client/named_step.h"
#include "cli/client/stored_checkpoint.h"
#include "cli/client/unknown_job.h"
#include "cli/commands/commands.h"
#include "cli/commands/jobs_command.h"
#include "cli/views/checkpoint_view.h"
#include "cli/views/manifest_view.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"
#include "store/open/open_storage.h"
#include "store/read/check_files.h"
#include "store/read/checkpoint_store.h"
#include "store/read/listed_checkpoint.h"

namespace cairn::cli {
namespace {

struct Arguments {
  std::string name;
  std::string root;
  bool check = false;
  bool tensors = false;
  bool objects = false;
  bool files = false;
};

absl::StatusOr<CheckpointList> ListFromCoordinator(const CommandContext& context, const std::string& job) {
  CAIRN_ASSIGN_OR_RETURN(const auto client, CoordinatorClient::Connect(context, job));
  CAIRN_ASSIGN_OR_RETURN(CheckpointList listed, ListWithMirror(*client, job));
  if (!listed.checkpoints.empty() || !listed.only_at_mirror.empty()) return listed;
  // A job without checkpoints gives an empty list; an unknown job is an error.
  CAIRN_RETURN_IF_ERROR(CheckJobOf(*client, job));
  return listed;
}

absl::StatusOr<std::vector<v1::Checkpoint>> ListFromStorage(const std::string& root, const std::string& job,
                                                            bool check) {
  CAIRN_ASSIGN_OR_RETURN(const auto storage, OpenStorageOfJob(root, job));
  CheckpointStore store(*storage);
  CAIRN_ASSIGN_OR_RETURN(const std::vector<StepRecord> steps, store.ReadCheckpoints(job));
  if (steps.empty()) CAIRN_RETURN_IF_ERROR(CheckJobIn(*storage, job));
  const JobLineage lineage = LineageOf(steps);
  std::vector<v1::Checkpoint> listed;
  for (const StepRecord& step : steps) {
    v1::Checkpoint& entry = listed.emplace_back(ListedCheckpoint(job, step, lineage));
    if (!check || entry.state() == v1::Phase::DAMAGED) continue;
    const absl::Status status = store.ReadValid(job, step).status();
    if (status.ok()) continue;
    entry.set_state(v1::Phase::DAMAGED);
    entry.clear_commit_time();
    *entry.mutable_error() = StatusToProto(status);
  }
  return listed;
}

absl::StatusOr<CheckpointList> ListFromEither(const CommandContext& context, const Arguments& arguments) {
  if (arguments.root.empty()) return ListFromCoordinator(context, arguments.name);
  CheckpointList listed;
  CAIRN_ASSIGN_OR_RETURN(listed.checkpoints, ListFromStorage(arguments.root, arguments.name, arguments.check));
  return listed;
}

absl::Status List(const CommandContext& context, const Arguments& arguments) {
  if (arguments.name.empty()) {
    if (!arguments.check) return ListJobs(context, arguments.root);
    return MakeError(Reason::kBadRequest, "--check looks at the files of one job",
                     {{"next", "Give its name; without --check this lists the jobs."}});
  }
  CAIRN_RETURN_IF_ERROR(CheckJobArgument(arguments.name));
  CAIRN_ASSIGN_OR_RETURN(const CheckpointList listed, ListFromEither(context, arguments));
  if (context.json()) {
    nlohmann::ordered_json json = {{"checkpoints", nlohmann::ordered_json::array()}};
    for (const v1::Checkpoint& checkpoint : listed.checkpoints) json["checkpoints"].push_back(ListedToJson(checkpoint));
    if (listed.mirror.has_value()) {
      json["mirror"] = MirrorToJson(*listed.mirror);
      json["only_at_mirror"] = nlohmann::ordered_json::array();
      for (const v1::Checkpoint& checkpoint : listed.only_at_mirror) {
        json["only_at_mirror"].push_back(ListedToJson(checkpoint));
      }
    }
    std::printf("%s\n", JsonText(json).c_str());
    return absl::OkStatus();
  }
  std::vector<v1::Checkpoint> shown = listed.checkpoints;
  shown.insert(shown.end(), listed.only_at_mirror.begin(), listed.only_at_mirror.end());
  std::stable_sort(shown.begin(), shown.end(),
                   [](const v1::Checkpoint& a, const v1::Checkpoint& b) { return a.step() < b.step(); });
  if (shown.empty()) {
    std::printf("%s has no committed checkpoint\n", arguments.name.c_str());
  } else {
    ListTable(shown).Print(stdout);
  }
  if (listed.mirror.has_value()) std::fputs(MirrorText(*listed.mirror).c_str(), stdout);
  return absl::OkStatus();
}

// The parts of a checkpoint that are shown.
struct Shown {
  std::string root;
  Manifest manifest;
  // Whether the files are below `root` with the right lengths; nothing if this machine does not see them.
  std::optional<absl::Status> files;
  std::optional<v1::Checkpoint> listed;  // the entry of `cairn list`; nothing if the checkpoint was deleted meanwhile
};

// Returns the entry of `cairn list` for a manifest; nothing if the step was deleted or replaced meanwhile. If the list
// could not read the step, returns that error, because pin, tags and metrics would be missing without notice.
absl::StatusOr<std::optional<v1::Checkpoint>> EntryOf(const Manifest& manifest,
                                                      const std::vector<v1::Checkpoint>& listed) {
  for (const v1::Checkpoint& checkpoint : listed) {
    if (checkpoint.step() != manifest.step) continue;
    if (checkpoint.state() == v1::Phase::DAMAGED) return StatusFromProto(checkpoint.error());
    if (checkpoint.attempt() == manifest.attempt) return checkpoint;
  }
  return std::nullopt;
}

absl::StatusOr<Shown> LookFromHere(const CommandContext& context, const CheckpointName& name, const std::string& root) {
  Shown shown;
  CAIRN_ASSIGN_OR_RETURN(StoredCheckpoint stored, OpenCheckpoint(context, name, root));
  shown.root = stored.storage->root();
  shown.manifest = std::move(stored.manifest);
  shown.files = CheckFilesOf(*stored.storage, shown.manifest);
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::Checkpoint> listed, ListFromStorage(root, name.job, /*check=*/false));
  CAIRN_ASSIGN_OR_RETURN(shown.listed, EntryOf(shown.manifest, listed));
  return shown;
}

absl::StatusOr<Shown> LookFromCoordinator(const CommandContext& context, const CheckpointName& name) {
  Shown shown;
  CAIRN_ASSIGN_OR_RETURN(const auto client, CoordinatorClient::Connect(context, name.job));
  CAIRN_ASSIGN_OR_RETURN(const CheckpointName named, WithoutTag(*client, name));
  absl::StatusOr<FetchedManifest> answer = FetchManifest(*client, named);
  if (auto there = FindOnlyAtMirror(*client, named, answer); there.has_value()) {
    CAIRN_ASSIGN_OR_RETURN(StoredCheckpoint stored, OpenAtMirror(context, *there));
    shown.files = CheckFilesOf(*stored.storage, stored.manifest);
    shown.root = std::move(there->address);
    shown.manifest = std::move(stored.manifest);
    shown.listed = std::move(there->listed);
    return shown;
  }
  CAIRN_ASSIGN_OR_RETURN(FetchedManifest fetched, std::move(answer));
  if (const auto storage = OpenHere(fetched); storage.ok()) shown.files = CheckFilesOf(**storage, fetched.manifest);
  shown.root = std::move(fetched.root);
  shown.manifest = std::move(fetched.manifest);
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::Checkpoint> listed, ListCheckpoints(*client, name.job));
  CAIRN_ASSIGN_OR_RETURN(shown.listed, EntryOf(shown.manifest, listed));
  return shown;
}

absl::Status Show(const CommandContext& context, const Arguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(const CheckpointName name, ParseCheckpointName(arguments.name));
  CAIRN_ASSIGN_OR_RETURN(const Shown shown, arguments.root.empty() ? LookFromCoordinator(context, name)
                                                                   : LookFromHere(context, name, arguments.root));
  const Manifest* const manifest = &shown.manifest;
  const std::optional<absl::Status>& files = shown.files;
  const bool damaged = files.has_value() && !files->ok();
  if (context.json()) {
    nlohmann::ordered_json json = ManifestToJson(*manifest, shown.root);
    if (shown.listed.has_value()) {
      const nlohmann::ordered_json listed = ListedToJson(*shown.listed);
      for (const char* key : {"state", "pinned", "tags", "metrics", "continues_step", "warnings"})
        json[key] = listed[key];
    }
    json["files_checked"] = files.has_value();
    json["damage"] = damaged ? ErrorToJson(*files) : nullptr;
    std::printf("%s\n", JsonText(json).c_str());
    return files.value_or(absl::OkStatus());
  }
  PrintSummary(*manifest, shown.root);
  if (shown.listed.has_value()) PrintStanding(*shown.listed);
  if (damaged) {
    std::printf("  on disk    %s\n",
                Coloured(stdout, Colour::kRed, absl::StrCat("DAMAGED: ", files->message())).c_str());
  } else if (!files.has_value()) {
    std::printf("  on disk    not checked: this machine does not see %s; run this with --root on a machine that does\n",
                ForTerminal(shown.root).c_str());
  } else {
    std::printf("  on disk    all files exist with their full lengths; `cairn verify` reads them\n");
  }
  if (arguments.tensors) {
    std::printf("\n");
    PrintTensors(*manifest);
  }
  if (arguments.objects) {
    std::printf("\n");
    PrintObjects(*manifest);
  }
  if (arguments.files) {
    std::printf("\n");
    PrintFiles(*manifest);
  }
  return files.value_or(absl::OkStatus());
}

}  // namespace

void AddListCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand("list", "Lists a job's checkpoints, committed and damaged ones");
  command.AddOption("JOB", arguments->name, "The job's name; without it the jobs are listed, as with `cairn jobs`");
  command.AddOption("--root", arguments->root, "Read this storage instead of asking a coordinator");
  command.AddFlag("--check", arguments->check, "Also check that every file exists with its full length (with --root)");
  command.Footer(
      "Examples:\n  cairn list demo\n  cairn list demo --root /checkpoints --format=json\n"
      "COMMITTED says that the step's manifest is whole. The files are not looked at, so that a list costs one read "
      "for\n"
      "each step: with --check it costs one `stat` for each file too, and a step with missing or short files is "
      "DAMAGED.\n"
      "SUPERSEDED is committed too, but the training has gone on from an older step since: JOB alone means the newest "
      "step\nthat is COMMITTED.\n"
      "MIRROR, if the coordinator has one (--mirror): copied, copying, waits, failed, '-' for steps that its rule "
      "leaves\nout, or 'only there' for steps that the root has no more; a load may name such a step.\n"
      "`cairn show JOB@STEP` looks at one step's files, `cairn verify JOB@STEP` reads every byte of them.");
  command.Action([arguments, &context] {
    if (arguments->check && arguments->root.empty()) {
      ReportError(context, MakeError(Reason::kBadRequest, "--check reads storage itself: it needs --root",
                                     {{"next", "Add --root DIR, the coordinator's root; or omit --check."}}));
      context.exit_status = kUsage;
      return;
    }
    context.exit_status = ReportError(context, WithNames(List(context, *arguments), arguments->name, arguments->root));
  });
}

void AddShowCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand("show", "Shows one checkpoint: tensors, files, and which rank wrote which file");
  command.AddOption("JOB@STEP", arguments->name, "The checkpoint; JOB alone means its latest").Required();
  command.AddOption("--root", arguments->root, "Read this storage instead of asking a coordinator");
  command.AddFlag("--tensors", arguments->tensors, "List the tensors");
  command.AddFlag("--objects", arguments->objects, "List the objects (values that are no tensors), with their sizes");
  command.AddFlag("--files", arguments->files, "List every item of every file");
  command.Footer(
      "Examples:\n  cairn show demo\n  cairn show demo@1200 --tensors --root /checkpoints\n"
      "If this machine sees the root, it also checks that all files exist with their full lengths. `cairn verify` "
      "reads them.\nExit status: 0 shown, 1 no such checkpoint, or files are missing or short.");
  command.Action([arguments, &context] {
    context.exit_status = ReportError(context, WithNames(Show(context, *arguments), arguments->name, arguments->root));
  });
}

}  // namespace cairn::cli
