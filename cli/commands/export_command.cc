#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/base/counted.h"
#include "cli/base/interrupt.h"
#include "cli/base/progress_line.h"
#include "cli/base/terminal.h"
#include "cli/client/stored_checkpoint.h"
#include "cli/commands/commands.h"
#include "cli/commands/reading_options.h"
#include "cli/commands/tensor_choice.h"
#include "cli/views/checkpoint_view.h"
#include "common/base/clock.h"
#include "common/base/digest.h"
#include "common/base/shell_word.h"
#include "common/format/alarm.h"
#include "common/format/checkpoint_path.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"
#include "foreign/read/dcp/dcp_directory.h"
#include "foreign/tensors/item_reader.h"
#include "foreign/write/dcp/dcp_exporter.h"
#include "foreign/write/dcp/dcp_plan.h"
#include "foreign/write/export_identity.h"
#include "foreign/write/export_plan.h"
#include "foreign/write/exporter.h"
#include "foreign/write/megatron/megatron_plan.h"
#include "foreign/write/model_files.h"
#include "foreign/write/paddle/paddle_plan.h"
#include "foreign/write/torch/exported_values.h"
#include "store/open/open_storage.h"
#include "store/posix/nested_root.h"

namespace cairn::cli {
namespace {

constexpr const char *kHuggingFace = "huggingface", *kDcp = "dcp", *kMegatron = "megatron", *kPaddle = "paddle";

// So many are named.
constexpr size_t kMostGroups = 8;

struct Arguments {
  std::string name;
  std::string root;
  std::string directory;
  std::string form = kHuggingFace;
  std::string like;
  ChoiceArguments choice;
  std::string max_shard_size = "5GB";
  ReadingArguments reading;
};

// The result of an export.
// What was written of the names that begin alike: "model", "optimizer".
struct Group {
  size_t tensors = 0;
  uint64_t bytes = 0;
};
using Groups = std::map<std::string, Group>;

Groups GroupsOf(const std::vector<WholeTensor>& tensors) {
  Groups groups;
  for (const WholeTensor& tensor : tensors) {
    Group& group = groups[tensor.plain.name.substr(0, tensor.plain.name.find('.'))];
    ++group.tensors;
    group.bytes += static_cast<uint64_t>(ElementCount(tensor.plain.shape).value_or(0)) *
                   static_cast<uint64_t>(BytesOf(tensor.plain.dtype));
  }
  return groups;
}

// Returns the groups, the largest first, as "optimizer (112 tensors, 2.1 MiB), model (56 tensors, 1.1 MiB)".
std::string GroupsText(const Groups& groups) {
  std::vector<std::pair<std::string, Group>> sorted(groups.begin(), groups.end());
  std::ranges::stable_sort(sorted, std::ranges::greater(), [](const auto& each) { return each.second.bytes; });
  std::vector<std::string> texts;
  for (const auto& [name, group] : sorted) {
    if (texts.size() == kMostGroups) {
      texts.push_back(absl::StrCat(sorted.size() - kMostGroups, " more"));
      break;
    }
    texts.push_back(absl::StrCat(ForTerminal(name), " (", Counted(group.tensors, "tensor"), ", ",
                                 FormatSize(static_cast<int64_t>(group.bytes)), ")"));
  }
  return absl::StrJoin(texts, ", ");
}

struct Written {
  size_t tensors = 0;
  Groups groups;
  std::optional<size_t> values;
  uint64_t bytes = 0;  // of the tensors
  std::vector<std::pair<std::string, uint64_t>> files;
  std::string index;
  std::vector<std::string> left_out;
  size_t finished_before = 0;  // files that an earlier export has finished
};

// Shows the progress of an export. A signal ends the export.
class Watch {
 public:
  Watch(const Manifest& manifest, uint64_t total_bytes)
      : line_([this, total_bytes, what = absl::StrCat("exporting ", manifest.job, "@", manifest.step, ":")] {
          return DescribeProgress(what, done_, total_bytes, absl::ToDoubleSeconds(Clock::Real().SteadyNow() - begin_));
        }) {}

  WriteExportOptions Options(const Manifest& manifest, const ExportOptions& options, const Arguments& arguments,
                             int64_t memory) {
    WriteExportOptions write;
    write.identity = ExportIdentity(manifest, options, arguments.form);
    write.memory_bytes = static_cast<uint64_t>(memory);
    write.threads = arguments.reading.threads;
    write.interrupted = [] { return InterruptFlag().load(); };
    write.progress = [this](uint64_t bytes) { done_ = bytes; };
    return write;
  }

 private:
  std::atomic<uint64_t> done_ = 0;
  const absl::Time begin_ = Clock::Real().SteadyNow();
  const ProgressLine line_;
};

absl::StatusOr<Written> WriteWhole(Storage& storage, const Manifest& manifest, const ExportPlan& plan,
                                   const ExportOptions& options, const Arguments& arguments, int64_t memory) {
  Watch watch(manifest, plan.total_bytes);
  CAIRN_ASSIGN_OR_RETURN(
      const size_t finished_before,
      WriteExport(storage, manifest, plan, arguments.directory, watch.Options(manifest, options, arguments, memory)));
  Written written{plan.tensors.size(), GroupsOf(plan.tensors), std::nullopt, plan.total_bytes, {}, plan.index_name, {},
                  finished_before};
  for (const ExportFile& file : plan.files) written.files.emplace_back(file.name, file.bytes());
  return written;
}

absl::StatusOr<Written> ExportToHuggingFace(Storage& storage, const Manifest& manifest, const ExportOptions& options,
                                            const Arguments& arguments, int64_t memory) {
  CAIRN_ASSIGN_OR_RETURN(ExportPlan plan, MakeExportPlan(manifest, options));
  if (!arguments.like.empty()) {
    CAIRN_ASSIGN_OR_RETURN(plan.model_files, FindModelFiles(arguments.like));
  }
  return WriteWhole(storage, manifest, plan, options, arguments, memory);
}

absl::StatusOr<Written> ExportToPaddle(Storage& storage, const Manifest& manifest, const ExportOptions& options,
                                       const Arguments& arguments, int64_t memory) {
  CAIRN_ASSIGN_OR_RETURN(const ExportPlan plan, MakePaddleExportPlan(manifest, options));
  return WriteWhole(storage, manifest, plan, options, arguments, memory);
}

absl::StatusOr<Written> WriteDcp(Storage& storage, const Manifest& manifest, const DcpExportPlan& plan,
                                 const ExportOptions& options, const Arguments& arguments, int64_t memory) {
  Watch watch(manifest, plan.total_bytes);
  CAIRN_ASSIGN_OR_RETURN(const size_t finished_before,
                         WriteDcpExport(storage, manifest, plan, arguments.directory,
                                        watch.Options(manifest, options, arguments, memory)));
  Written written{
      plan.tensors.size(), GroupsOf(plan.tensors), plan.values, plan.total_bytes, {}, std::string(kDcpMetadataName), {},
      finished_before};
  for (const DcpExportFile& file : plan.files) written.files.emplace_back(file.name, file.bytes);
  for (const auto& [name, bytes] : plan.beside) written.files.emplace_back(name, bytes.size());
  return written;
}

absl::StatusOr<Written> ExportToDcp(Storage& storage, const Manifest& manifest, const ExportOptions& options,
                                    const Arguments& arguments, int64_t memory) {
  ItemReader reader(&storage, manifest);
  CAIRN_ASSIGN_OR_RETURN(auto values, ReadExportedValues(manifest, options.choice, reader));
  values = TakeApart(std::move(values));
  CAIRN_RETURN_IF_ERROR(CheckNoneIsOpaque(values));
  CAIRN_ASSIGN_OR_RETURN(DcpExportPlan plan, MakeDcpExportPlan(manifest, options, values));
  CAIRN_ASSIGN_OR_RETURN(const ValuesOfRanks of_ranks, ReadValuesOfRanks(manifest, options.choice, values, reader));
  if (!of_ranks.contents.empty()) {
    plan.beside.emplace_back(kPerRankValuesName,
                             RenderPerRankValues(of_ranks.values, of_ranks.contents, Digest(plan.metadata)));
  }
  return WriteDcp(storage, manifest, plan, options, arguments, memory);
}

absl::StatusOr<Written> ExportToMegatron(Storage& storage, const Manifest& manifest, const ExportOptions& options,
                                         const Arguments& arguments, int64_t memory) {
  ItemReader reader(&storage, manifest);
  CAIRN_ASSIGN_OR_RETURN(auto values, ReadExportedValues(manifest, options.choice, reader));
  CAIRN_ASSIGN_OR_RETURN(const MegatronExportPlan plan, MakeMegatronExportPlan(manifest, options, std::move(values)));
  CAIRN_ASSIGN_OR_RETURN(Written written, WriteDcp(storage, manifest, plan.dcp, options, arguments, memory));
  written.left_out = plan.left_out;
  return written;
}

// Below a root, the exported directory would look like a job.
absl::Status CheckOutsideRoots(const std::string& directory) {
  const std::optional<std::string> root = IsRoot(directory) ? directory : RootAbove(directory);
  if (!root.has_value()) return absl::OkStatus();
  return MakeError(Reason::kBadRequest,
                   absl::StrCat("--to ", directory, " is below ", *root, ", a root of checkpoints"),
                   {{"directory", directory},
                    {"root", *root},
                    {"next", absl::StrCat("Choose a directory outside of it. If ", *root,
                                          " has become a root by mistake and holds no checkpoints, remove ",
                                          ForShell(*root + "/.cairn"), " first.")}});
}

absl::Status Export(const CommandContext& context, const Arguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(const CheckpointName name, ParseCheckpointName(arguments.name));
  ExportOptions options;
  CAIRN_ASSIGN_OR_RETURN(const int64_t max_shard, ParseSize(arguments.max_shard_size));
  CAIRN_ASSIGN_OR_RETURN(const int64_t memory, ParseSize(arguments.reading.memory));
  if (max_shard <= 0) return MakeError(Reason::kBadQuantity, "--max-shard-size must be above 0");
  if (!arguments.like.empty() && arguments.form != kHuggingFace) {
    return MakeError(Reason::kBadRequest, "--like is for --as huggingface",
                     {{"next", "Omit --like: the other formats do not have a model's files."}});
  }
  if (IsDirectoryRoot(arguments.directory)) CAIRN_RETURN_IF_ERROR(CheckOutsideRoots(arguments.directory));
  options.max_shard_bytes = static_cast<uint64_t>(max_shard);
  CAIRN_ASSIGN_OR_RETURN(options.choice, ReadChoice(arguments.choice));
  CAIRN_ASSIGN_OR_RETURN(const StoredCheckpoint stored, OpenCheckpoint(context, name, arguments.root));
  const Manifest& manifest = stored.manifest;
  InterruptFlag();
  const absl::Time begin = Clock::Real().SteadyNow();
  const auto write = arguments.form == kDcp        ? ExportToDcp
                     : arguments.form == kMegatron ? ExportToMegatron
                     : arguments.form == kPaddle   ? ExportToPaddle
                                                   : ExportToHuggingFace;
  const absl::StatusOr<Written> result = write(*stored.storage, manifest, options, arguments, memory);
  if (!result.ok()) {
    // The next action of the error uses these names.
    return WithMetadata(
        result.status(),
        {{"job", manifest.job}, {"step", absl::StrCat(manifest.step)}, {"root", stored.storage->root()}});
  }
  const Written& written = *result;
  v1::Checkpoint told;
  for (const Alarm& alarm : manifest.alarms) {
    *told.add_warnings() = StatusToProto(AlarmStatus(alarm, manifest.job, manifest.step));
  }
  if (context.json()) {
    nlohmann::ordered_json json = {{"job", manifest.job},
                                   {"step", manifest.step},
                                   {"directory", arguments.directory},
                                   {"tensors", written.tensors},
                                   {"bytes", written.bytes}};
    json["groups"] = nlohmann::ordered_json::array();
    for (const auto& [prefix, group] : written.groups) {
      json["groups"].push_back({{"name", prefix}, {"tensors", group.tensors}, {"bytes", group.bytes}});
    }
    if (written.values) json["values"] = *written.values;
    json["files"] = nlohmann::ordered_json::array();
    for (const auto& [file, bytes] : written.files) json["files"].push_back({{"name", file}, {"bytes", bytes}});
    json["index"] = written.index;
    json["finished_before"] = written.finished_before;
    json["warnings"] = WarningsToJson(told);
    if (arguments.form == kMegatron) json["left_out"] = written.left_out;
    std::printf("%s\n", JsonText(json).c_str());
    return absl::OkStatus();
  }
  const std::string values = written.values ? absl::StrCat(" and ", Counted(*written.values, "value")) : "";
  std::printf("%s %s@%lld to %s: %s%s, %s in %s, %s\n", Coloured(stdout, Colour::kGreen, "exported").c_str(),
              manifest.job.c_str(), static_cast<long long>(manifest.step), ForTerminal(arguments.directory).c_str(),
              Counted(written.tensors, "tensor").c_str(), values.c_str(),
              FormatSize(static_cast<int64_t>(written.bytes)).c_str(), Counted(written.files.size(), "file").c_str(),
              ShortDuration(Clock::Real().SteadyNow() - begin).c_str());
  if (written.groups.size() > 1) std::printf("written were %s\n", GroupsText(written.groups).c_str());
  if (written.finished_before > 0) {
    std::printf("%s had been finished by an earlier export that was interrupted\n",
                Counted(written.finished_before, "file").c_str());
  }
  if (!written.left_out.empty()) {
    std::printf("entries of common.pt that are omitted, because only the code of their classes could make them:\n%s",
                IndentedLines(written.left_out).c_str());
  }
  std::printf("%s", WarningsText(told).c_str());
  return absl::OkStatus();
}

}  // namespace

void AddExportCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand("export", "Writes a checkpoint as files of another library, with whole tensors");
  command.AddOption("JOB@STEP", arguments->name, "The checkpoint; JOB alone means its latest").Required();
  command.AddOption("--root", arguments->root, kRootToRead);
  command
      .AddOption("--to", arguments->directory,
                 "Directory to write into, which is made if missing, but its parents are not; or s3://BUCKET/PREFIX, "
                 "gs://BUCKET/PREFIX")
      .Required();
  command
      .AddOption("--as", arguments->form,
                 "The format: safetensors for transformers, or a directory of torch.distributed.checkpoint, "
                 "Megatron-core (torch_dist) or Paddle (FlexCheckpoint)")
      .OneOf({kHuggingFace, kDcp, kMegatron, kPaddle})
      .ShowDefault();
  command.AddOption("--like", arguments->like,
                    "A model's directory, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX: its config.json, tokenizer and "
                    "other small files are copied");
  AddChoiceOptions(command, arguments->choice);
  command.AddOption("--max-shard-size", arguments->max_shard_size, "Maximum size of a file").ShowDefault();
  AddReadingOptions(command, arguments->reading);
  command.Footer(
      "Examples:\n"
      "  cairn export demo@1200 --root /checkpoints --to /models/demo --include 'model.*'\n"
      "  cairn export demo --root /checkpoints --to /models/demo --mapping load.aoa --reverse --like /models/llama\n"
      "  cairn export demo@1200 --root /checkpoints --to /old/step-1200 --as dcp\n"
      "Files get their names only when all are whole; last comes model.safetensors.index.json or the metadata.");
  command.Action([arguments, &context] {
    const absl::Status status = WithNames(Export(context, *arguments), arguments->name, arguments->root);
    if (!status.ok()) context.exit_status = ReportError(context, status);
  });
}

}  // namespace cairn::cli
