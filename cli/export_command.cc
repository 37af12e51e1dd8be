#include "cli/export_command.h"

#include <atomic>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/interrupt.h"
#include "cli/progress_line.h"
#include "cli/tensor_choice.h"
#include "cli/terminal.h"
#include "common/base/clock.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/storage/checkpoint_path.h"
#include "common/storage/checkpoint_store.h"
#include "export/export_plan.h"
#include "export/exporter.h"

namespace cairn::cli {
namespace {

struct Arguments {
  std::string name;
  std::string root;
  std::string directory;
  ChoiceArguments choice;
  std::string max_shard_size = "5GB";
  std::string memory = "1GiB";
  int threads = 2;
};

absl::Status Export(const CommandContext& context, const Arguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(const CheckpointName name, ParseCheckpointName(arguments.name));
  ExportOptions options;
  CAIRN_ASSIGN_OR_RETURN(const int64_t max_shard, ParseSize(arguments.max_shard_size));
  CAIRN_ASSIGN_OR_RETURN(const int64_t memory, ParseSize(arguments.memory));
  if (max_shard <= 0) return MakeError(Reason::kBadQuantity, "--max-shard-size must be above 0");
  options.max_shard_bytes = static_cast<uint64_t>(max_shard);
  CAIRN_ASSIGN_OR_RETURN(options.choice, ReadChoice(arguments.choice));
  CAIRN_ASSIGN_OR_RETURN(const auto storage, PosixStorage::Open(arguments.root, false));
  CheckpointStore store(*storage);
  CAIRN_ASSIGN_OR_RETURN(const std::optional<int64_t> step, store.StepOf(name));
  CAIRN_ASSIGN_OR_RETURN(const Manifest manifest, store.ReadManifest(name.job, step));
  CAIRN_ASSIGN_OR_RETURN(const ExportPlan plan, MakeExportPlan(manifest, options));
  std::atomic<uint64_t> done = 0;
  WriteExportOptions write;
  write.memory_bytes = static_cast<uint64_t>(memory);
  write.threads = arguments.threads;
  InterruptFlag();
  write.interrupted = [] { return InterruptFlag().load(); };
  write.progress = [&](uint64_t bytes) { done = bytes; };
  const absl::Time begin = Clock::Real().SteadyNow();
  {
    const ProgressLine line([&] {
      return DescribeProgress(absl::StrCat("exporting ", manifest.job, "@", manifest.step, ":"), done, plan.total_bytes,
                              absl::ToDoubleSeconds(Clock::Real().SteadyNow() - begin));
    });
    CAIRN_RETURN_IF_ERROR(WriteExport(*storage, manifest, plan, arguments.directory, write));
  }
  if (context.json()) {
    nlohmann::ordered_json json = {{"job", manifest.job},
                                   {"step", manifest.step},
                                   {"directory", arguments.directory},
                                   {"tensors", plan.tensors.size()},
                                   {"bytes", plan.total_bytes}};
    json["files"] = nlohmann::ordered_json::array();
    for (const ExportFile& file : plan.files) {
      json["files"].push_back({{"name", file.name}, {"bytes", file.header.size() + file.data_bytes}});
    }
    json["index"] = std::string(kPlainIndexName);
    std::printf("%s\n", json.dump(2).c_str());
    return absl::OkStatus();
  }
  std::printf("%s %s@%lld to %s: %zu tensors, %s in %zu files, %s\n",
              Coloured(stdout, Colour::kGreen, "exported").c_str(), manifest.job.c_str(),
              static_cast<long long>(manifest.step), arguments.directory.c_str(), plan.tensors.size(),
              FormatSize(static_cast<int64_t>(plan.total_bytes)).c_str(), plan.files.size(),
              ShortDuration(Clock::Real().SteadyNow() - begin).c_str());
  return absl::OkStatus();
}

}  // namespace

void AddExportCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand("export", "Writes a checkpoint as Hugging Face safetensors: whole tensors");
  command.AddOption("JOB@STEP", arguments->name, "The checkpoint; JOB alone is its latest").Required();
  command.AddOption("--root", arguments->root, "The storage").Required();
  command
      .AddOption("--to", arguments->directory,
                 "Directory to write into; made if it is not there, those above it are not")
      .Required();
  AddChoiceOptions(command, arguments->choice);
  command.AddOption("--max-shard-size", arguments->max_shard_size, "Largest file").ShowDefault();
  command.AddOption("--memory", arguments->memory, "For the bytes under way, whatever the size of the model")
      .ShowDefault();
  command.AddOption("--threads", arguments->threads, "Read, permute and cast at once").Between(1, 64).ShowDefault();
  command.Footer(
      "Examples:\n"
      "  cairn export demo@1200 --root /checkpoints --to /models/demo --include 'model.*'\n"
      "  cairn export demo --root /checkpoints --to /models/demo --mapping load.aoa --reverse\n"
      "Files get their names only when all are whole, model.safetensors.index.json last.");
  command.Action([arguments, &context] {
    const absl::Status status = Export(context, *arguments);
    if (!status.ok()) context.exit_status = ReportError(context, status);
  });
}

}  // namespace cairn::cli
