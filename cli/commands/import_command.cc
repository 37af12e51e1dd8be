#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/base/counted.h"
#include "cli/base/interrupt.h"
#include "cli/base/progress_line.h"
#include "cli/base/terminal.h"
#include "cli/commands/commands.h"
#include "cli/commands/reading_options.h"
#include "cli/commands/tensor_choice.h"
#include "cli/views/manifest_view.h"
#include "common/base/clock.h"
#include "common/format/checkpoint_path.h"
#include "common/process/quantity.h"
#include "common/resources/open_files.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "foreign/import/importer.h"
#include "store/open/open_storage.h"

namespace cairn::cli {
namespace {

struct Arguments {
  std::string directory;
  std::string name;
  std::string root;
  ChoiceArguments choice;
  ReadingArguments reading;
};

// Adds the next action for an import that was refused.
absl::Status WithNextAction(const absl::Status& status, const std::string& root) {
  // The table's next action is for checkpoints of Cairn, and the source is none.
  if (absl::StrContains(NextActionOf(status), "cairn verify")) {
    return WithMetadata(status, {{"next",
                                  "The source is damaged: look at the file that the message names, and use another "
                                  "copy of the source or an earlier step of it."}});
  }
  if (!HasReason(status, Reason::kRootInUse)) return status;
  return WithMetadata(
      status, {{"root", root},
               {"next",
                "Stop the coordinator that serves the root and import then, or import into another root. A job that "
                "runs can load the directory without an import: client.load(state, source=DIRECTORY)."}});
}

absl::Status Import(const CommandContext& context, const Arguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(const CheckpointName name, ParseCheckpointName(arguments.name));
  if (!name.step) {
    return MakeError(
        Reason::kBadRequest, absl::StrCat("the new checkpoint's step is missing: ", name.job, "@STEP"),
        {{"next", absl::StrCat("Give for example --to ", name.job, "@0; any step without a checkpoint is possible.")}});
  }
  CAIRN_ASSIGN_OR_RETURN(const int64_t memory, ParseSize(arguments.reading.memory));
  std::atomic<uint64_t> done = 0, total = 0;
  ImportOptions options;
  CAIRN_ASSIGN_OR_RETURN(options.choice, ReadChoice(arguments.choice));
  options.memory_bytes = static_cast<uint64_t>(memory);
  options.threads = arguments.reading.threads;
  InterruptFlag();
  options.interrupted = [] { return InterruptFlag().load(); };
  options.progress = [&](uint64_t bytes, uint64_t of) {
    total = of;
    done = bytes;
  };
  // All files of the source are open at the same time.
  RaiseOpenFileLimit();
  std::error_code error;
  const std::string directory = IsDirectoryRoot(arguments.directory)
                                    ? std::filesystem::absolute(arguments.directory, error).string()
                                    : arguments.directory;
  if (error)
    return MakeError(Reason::kBadRequest, absl::StrCat("no path: '", arguments.directory, "'"),
                     {{"next", "Give the directory or file that the other library wrote."}});
  CAIRN_ASSIGN_OR_RETURN(const auto storage, OpenStorage(arguments.root, /*create=*/true));
  const absl::Time begin = Clock::Real().SteadyNow();
  absl::StatusOr<ImportReport> report;
  {
    const ProgressLine line([&] {
      return DescribeProgress(absl::StrCat("importing ", arguments.name, ":"), done, total,
                              absl::ToDoubleSeconds(Clock::Real().SteadyNow() - begin));
    });
    report = ImportCheckpoint(*storage, directory, name.job, *name.step, Clock::Real(), options);
  }
  CAIRN_RETURN_IF_ERROR(WithNextAction(report.status(), storage->root()));
  const Manifest& manifest = report->manifest;
  if (context.json()) {
    nlohmann::ordered_json json = SummaryToJson(manifest);
    json["source"] = directory;
    json["tensors"] = manifest.tensors.size();
    json["objects"] = manifest.objects.size();
    json["aliases"] = manifest.aliases.size();
    json["opaque"] = report->opaque;
    json["left_out"] = report->left_out;
    std::printf("%s\n", JsonText(json).c_str());
    return absl::OkStatus();
  }
  std::printf("%s %s as %s@%lld: %s and %s, %s in %s, %s\n", Coloured(stdout, Colour::kGreen, "imported").c_str(),
              ForTerminal(directory).c_str(), manifest.job.c_str(), static_cast<long long>(manifest.step),
              Counted(manifest.tensors.size(), "tensor").c_str(), Counted(manifest.objects.size(), "object").c_str(),
              FormatSize(static_cast<int64_t>(manifest.total_bytes())).c_str(),
              Counted(manifest.files.size(), "file").c_str(), ShortDuration(Clock::Real().SteadyNow() - begin).c_str());
  if (!report->opaque.empty()) {
    std::printf("values of classes that Cairn does not create; only a description of them is kept:\n%s",
                IndentedLines(report->opaque).c_str());
  }
  if (!report->left_out.empty()) {
    std::printf("left out: %s, which %s that Cairn knows\n%s", Counted(report->left_out.size(), "value").c_str(),
                report->left_out.size() == 1 ? "is no tensor" : "are no tensors",
                IndentedLines(report->left_out).c_str());
  }
  return absl::OkStatus();
}

}  // namespace

void AddImportCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand("import", "Makes a checkpoint from another library's files");
  command
      .AddOption("DIR", arguments->directory,
                 "A directory of torch.distributed.checkpoint, Megatron-core, torchsnapshot, Paddle's FlexCheckpoint, "
                 "DeepSpeed or of safetensors files, or a file of torch.save or paddle.save; also as "
                 "s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
      .Required();
  command.AddOption("--to", arguments->name, "The new checkpoint, JOB@STEP").Required();
  command.AddOption("--root", arguments->root, "The storage; stop its coordinator first").Required();
  AddChoiceOptions(command, arguments->choice);
  AddReadingOptions(command, arguments->reading);
  command.Footer(
      "Examples:\n  cairn import /models/llama --to demo@0 --root /checkpoints\n"
      "  cairn import /old/step-900 --to demo@900 --root /checkpoints --mapping load.aoa --exclude 'optimizer.*'\n"
      "No pickle is executed. The checkpoint appears when it is complete; an import that ends before that leaves "
      "nothing.\nExit status: 0 committed, 1 not committed.");
  command.Action([arguments, &context] {
    const absl::Status status = WithNames(Import(context, *arguments), arguments->name, arguments->root);
    if (!status.ok()) context.exit_status = ReportError(context, status);
  });
}

}  // namespace cairn::cli
