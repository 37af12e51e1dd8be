#include <atomic>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/base/counted.h"
#include "cli/base/interrupt.h"
#include "cli/base/progress_line.h"
#include "cli/base/terminal.h"
#include "cli/commands/commands.h"
#include "cli/views/fault_view.h"
#include "common/base/clock.h"
#include "common/base/shell_word.h"
#include "common/format/checkpoint_path.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/open/open_storage.h"
#include "store/read/checkpoint_store.h"
#include "store/repair/repair.h"
#include "store/storage/storage.h"

namespace cairn::cli {
namespace {

struct Arguments {
  std::string name;
  std::string root;
  bool assume_committed = false;
  int threads = 2;
};

nlohmann::ordered_json ReportToJson(const RepairReport& report) {
  return {{"job", report.manifest.job},
          {"step", report.manifest.step},
          {"attempt", report.manifest.attempt},
          {"repaired", report.repaired},
          {"files", report.manifest.files.size()},
          {"bytes", report.manifest.total_bytes()},
          {"world_size", report.manifest.world_size},
          {"unknown", report.unknown}};
}

void Print(const RepairReport& report, absl::Duration took) {
  const std::string name = absl::StrCat(report.manifest.job, "@", report.manifest.step);
  if (!report.repaired) {
    std::printf("%s is committed (attempt %u), and every checksum agrees: there is nothing to repair\n", name.c_str(),
                report.manifest.attempt);
    return;
  }
  std::printf("%s %s (attempt %u): %s and %s in %s, %s read in %s, every checksum agrees\n",
              Coloured(stdout, Colour::kGreen, "repaired").c_str(), name.c_str(), report.manifest.attempt,
              Counted(report.manifest.tensors.size(), "tensor").c_str(),
              Counted(report.manifest.objects.size(), "object").c_str(),
              Counted(report.manifest.files.size(), "file").c_str(),
              FormatSize(static_cast<int64_t>(report.verified.bytes)).c_str(), ShortDuration(took).c_str());
  std::printf("not stored in its files, and therefore unknown:\n");
  for (const std::string& line : report.unknown) std::printf("  %s\n", ForTerminal(line).c_str());
}

// Adds the next action for a repair that was refused.
absl::Status WithNextAction(const absl::Status& status, const CheckpointName& name, const std::string& root) {
  const std::string at = absl::StrCat(name.job, "@", *name.step),
                    command = absl::StrCat("`cairn repair ", at, " --root ", ForShell(root), "`");
  ErrorMetadata more = {{"job", name.job}, {"step", absl::StrCat(*name.step)}, {"root", root}};
  const auto reason = ReasonOf(status);
  if (reason == Reason::kRootInUse) {
    more.emplace_back(
        "next",
        absl::StrCat("No coordinator may run while the new manifest is written: stop the one that serves the root, "
                     "run ",
                     command, ", start the coordinator again. Agents and trainers may stay: they wait for it."));
  } else if (reason == Reason::kNotCommitted) {
    more.emplace_back("next", absl::StrCat("Load another step: `cairn list ", name.job, " --root ", ForShell(root),
                                           "` shows them. An aborted attempt cannot be repaired."));
  } else if (absl::IsDataLoss(status) && reason != Reason::kManifestCorrupt) {
    more.emplace_back("next",
                      absl::StrCat("Without these bytes the step is lost. If you have a copy of the file, put it "
                                   "back and run ",
                                   command, " again; else load an earlier step: `cairn list ", name.job, " --root ",
                                   ForShell(root), " --check` shows which ones have all files; verify it before."));
  }
  return WithMetadata(status, more);
}

absl::Status Repair(const CommandContext& context, const Arguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(CheckpointName name, ParseCheckpointName(arguments.name));
  if (!name.step && name.tag.empty()) {
    return MakeError(Reason::kBadRequest, absl::StrCat("say which step to repair: ", name.job, "@STEP"),
                     {{"next", absl::StrCat("`cairn list ", name.job, " --root ", ForShell(arguments.root),
                                            "` shows which steps are damaged.")}});
  }
  CAIRN_ASSIGN_OR_RETURN(const auto storage, OpenStorageOfJob(arguments.root, name.job));
  CAIRN_ASSIGN_OR_RETURN(name.step, CheckpointStore(*storage).StepOf(name));
  std::atomic<uint64_t> done = 0;
  RepairOptions options;
  options.assume_committed = arguments.assume_committed;
  options.verify.threads = arguments.threads;
  InterruptFlag();
  options.verify.interrupted = [] { return InterruptFlag().load(); };
  options.verify.progress = [&](uint64_t bytes) { done = bytes; };
  const absl::Time begin = Clock::Real().SteadyNow();
  RepairReport report;
  absl::Status status;
  {
    const ProgressLine line([&] {
      return absl::StrCat("verifying the files of ", arguments.name, ": ", FormatSize(static_cast<int64_t>(done)));
    });
    status = WithNextAction(RepairCheckpoint(*storage, name.job, *name.step, options, report), name, storage->root());
  }
  if (!context.json() && !report.verified.faults.empty()) FaultTable(report.verified).Print(stdout);
  CAIRN_RETURN_IF_ERROR(status);
  if (context.json()) {
    std::printf("%s\n", JsonText(ReportToJson(report)).c_str());
  } else {
    Print(report, Clock::Real().SteadyNow() - begin);
  }
  return absl::OkStatus();
}

}  // namespace

void AddRepairCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand("repair", "Rebuilds a damaged manifest from the files of the checkpoint");
  command.AddOption("JOB@STEP", arguments->name, "The checkpoint").Required();
  command.AddOption("--root", arguments->root, "The storage; stop its coordinator before a repair").Required();
  command.AddFlag("--assume-committed", arguments->assume_committed,
                  "State that the step was committed, although nothing in storage proves it");
  command.AddOption("--threads", arguments->threads, "Number of files read at a time").Between(1, 64).ShowDefault();
  command.Footer(
      "Example:\n  cairn repair demo@1200 --root /checkpoints\nRepairs a damaged manifest, which `cairn list` shows "
      "as MANIFEST_CORRUPT; it cannot repair other files. It first reads\n"
      "every byte. The damaged manifest stays; the new one is stored beside it, and read instead of it.\n"
      "Exit status: 0 repaired or nothing to repair, 1 not repaired: the step stays as it was.");
  command.Action([arguments, &context] {
    const absl::Status status = WithNames(Repair(context, *arguments), arguments->name, arguments->root);
    if (!status.ok()) context.exit_status = ReportError(context, status);
  });
}

}  // namespace cairn::cli
