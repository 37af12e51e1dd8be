#include "cli/diff_command.h"

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/counted.h"
#include "cli/interrupt.h"
#include "cli/progress_line.h"
#include "cli/reading_options.h"
#include "cli/tensor_choice.h"
#include "cli/terminal.h"
#include "common/base/clock.h"
#include "common/base/digest.h"
#include "common/file/posix.h"
#include "common/process/quantity.h"
#include "common/resources/open_files.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/storage/checkpoint_path.h"
#include "common/storage/checkpoint_store.h"
#include "export/comparison.h"
#include "import/import_directory.h"

namespace cairn::cli {
namespace {

struct Arguments {
  std::string first;
  std::string second;
  std::string root;
  std::string second_root;
  bool all = false;
  ChoiceArguments choice;
  ReadingArguments reading;
};

struct Side {
  std::string name;
  std::unique_ptr<PosixStorage> storage;  // null for files of another library
  Manifest manifest;
};

// No job's name begins as a path does, or has an empty part; and a directory that is there is meant, unless it stands
// beside a root of the same job.
bool IsPath(const std::string& text, const std::string& root) {
  if (text.starts_with("/") || text.starts_with(".") || text.ends_with("/")) return true;
  std::error_code error;
  if (!std::filesystem::is_directory(text, error)) return false;
  return root.empty() || !std::filesystem::is_directory(std::filesystem::path(root) / text, error);
}

absl::StatusOr<Side> Open(const std::string& text, const std::string& root) {
  Side side;
  if (IsPath(text, root)) {
    std::error_code error;
    side.name = std::filesystem::absolute(text, error).string();
    if (error)
      return MakeError(Reason::kBadRequest, absl::StrCat("no path: '", text, "'"),
                       {{"next", "Give a directory that holds a checkpoint, or a job and step as in demo@1200."}});
    auto manifest = ReadImportDirectory(side.name);
    if (HasReason(manifest.status(), Reason::kFileMissing)) {
      return WithMetadata(manifest.status(),
                          {{"next", "Give a directory that holds a checkpoint, or a job and step as in demo@1200."}});
    }
    CAIRN_ASSIGN_OR_RETURN(side.manifest, std::move(manifest));
    return side;
  }
  CAIRN_ASSIGN_OR_RETURN(const CheckpointName name, ParseCheckpointName(text));
  if (root.empty()) {
    return MakeError(Reason::kBadRequest, absl::StrCat(text, " is a checkpoint: say below which --root it stands"),
                     {{"next", "Add --root DIR. A directory of another library is not at that path."}});
  }
  CAIRN_ASSIGN_OR_RETURN(side.storage, PosixStorage::Open(root, false));
  CheckpointStore store(*side.storage);
  CAIRN_ASSIGN_OR_RETURN(const std::optional<int64_t> step, store.StepOf(name));
  CAIRN_ASSIGN_OR_RETURN(side.manifest, store.ReadManifest(name.job, step));
  side.name = absl::StrCat(side.manifest.job, "@", side.manifest.step);
  return side;
}

const char* DifferenceName(Difference difference) {
  switch (difference) {
    case Difference::kNone:
      return "NONE";
    case Difference::kValues:
      return "VALUES";
    case Difference::kShape:
      return "SHAPE";
    case Difference::kDtype:
      return "DTYPE";
    case Difference::kOnlyFirst:
      return "ONLY_FIRST";
    case Difference::kOnlySecond:
      return "ONLY_SECOND";
  }
  return "";
}

nlohmann::ordered_json ItemToJson(const std::optional<ComparedItem>& item, bool object) {
  if (!item) return nullptr;
  nlohmann::ordered_json json;
  if (!object) {
    json["dtype"] = std::string(NameOf(item->dtype));
    json["shape"] = item->shape;
  }
  json["bytes"] = item->bytes;
  json["digest"] = item->digest.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(DigestHex(item->digest));
  return json;
}

nlohmann::ordered_json NameToJson(const ComparedName& name) {
  nlohmann::ordered_json json = {{"name", name.name}, {"kind", name.object ? "object" : "tensor"}};
  if (name.rank) json["rank"] = *name.rank;
  json["difference"] = DifferenceName(name.difference);
  json["first"] = ItemToJson(name.first, name.object);
  json["second"] = ItemToJson(name.second, name.object);
  if (name.difference == Difference::kValues) {
    json["differing"] = name.differing;
    json["first_differing"] = name.first_differing;
  }
  return json;
}

std::string Text(const std::optional<ComparedItem>& item, bool object) {
  if (!item) return "-";
  if (object) return FormatSize(static_cast<int64_t>(item->bytes));
  return absl::StrCat(std::string(NameOf(item->dtype)), ShapeToString(item->shape));
}

std::string Detail(const ComparedName& name) {
  if (name.difference == Difference::kValues) {
    return absl::StrCat(name.differing, name.object ? " byte" : " element", name.differing == 1 ? "" : "s", ", from ",
                        name.first_differing);
  }
  return name.first && !name.first->digest.empty() ? DigestHex(name.first->digest).substr(0, 16) : "";
}

void Print(const std::vector<ComparedName>& names, const Side& first, const Side& second, bool all, size_t differing) {
  Table table({"NAME", "DIFFERENCE", "FIRST", "SECOND", "WHAT"});
  for (const ComparedName& name : names) {
    if (!all && name.difference == Difference::kNone) continue;
    table.Add({name.rank ? absl::StrCat(name.name, " (rank ", *name.rank, ")") : name.name,
               name.difference == Difference::kNone ? "" : DifferenceName(name.difference),
               Text(name.first, name.object), Text(name.second, name.object), Detail(name)},
              name.difference == Difference::kNone ? Colour::kNone : Colour::kRed);
  }
  if (all || differing > 0) table.Print(stdout);
  if (differing == 0) {
    std::printf("%s %s and %s: %s, bit for bit\n", Coloured(stdout, Colour::kGreen, "equal").c_str(),
                first.name.c_str(), second.name.c_str(), Counted(names.size(), "name").c_str());
  } else {
    std::printf("%s %s and %s: %zu of %s %s\n", Coloured(stdout, Colour::kRed, "different").c_str(), first.name.c_str(),
                second.name.c_str(), differing, Counted(names.size(), "name").c_str(),
                differing == 1 ? "differs" : "differ");
  }
}

absl::Status Diff(CommandContext& context, const Arguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(const int64_t memory, ParseSize(arguments.reading.memory));
  CAIRN_ASSIGN_OR_RETURN(const TensorChoice choice, ReadChoice(arguments.choice));
  // Every file of both sides stays open while it is read.
  RaiseOpenFileLimit();
  CAIRN_ASSIGN_OR_RETURN(const Side first, Open(arguments.first, arguments.root));
  CAIRN_ASSIGN_OR_RETURN(
      const Side second,
      Open(arguments.second, arguments.second_root.empty() ? arguments.root : arguments.second_root));
  ComparedCheckpoint ours{first.storage.get(), &first.manifest, choice};
  ComparedCheckpoint theirs{second.storage.get(), &second.manifest, {}};
  // The patterns are about the names of the first side, which a mapping changes.
  if (!choice.mapping) theirs.choice = choice;
  std::atomic<uint64_t> done = 0, total = 0;
  CompareOptions options;
  options.memory_bytes = static_cast<uint64_t>(memory);
  options.threads = arguments.reading.threads;
  InterruptFlag();
  options.interrupted = [] { return InterruptFlag().load(); };
  options.progress = [&](uint64_t bytes, uint64_t of) {
    total = of;
    done = bytes;
  };
  const absl::Time begin = Clock::Real().SteadyNow();
  absl::StatusOr<std::vector<ComparedName>> names;
  {
    const ProgressLine line([&] {
      return DescribeProgress(absl::StrCat("comparing ", first.name, " and ", second.name, ":"), done, total,
                              absl::ToDoubleSeconds(Clock::Real().SteadyNow() - begin));
    });
    names = CompareCheckpoints(ours, theirs, options);
  }
  CAIRN_RETURN_IF_ERROR(names.status());
  size_t differing = 0;
  for (const ComparedName& name : *names) differing += name.difference == Difference::kNone ? 0 : 1;
  if (differing > 0) context.exit_status = kFailed;
  if (!context.json()) {
    Print(*names, first, second, arguments.all, differing);
    return absl::OkStatus();
  }
  nlohmann::ordered_json json = {{"first", first.name},
                                 {"second", second.name},
                                 {"equal", differing == 0},
                                 {"compared", names->size()},
                                 {"differing", differing}};
  json["names"] = nlohmann::ordered_json::array();
  for (const ComparedName& name : *names) {
    if (arguments.all || name.difference != Difference::kNone) json["names"].push_back(NameToJson(name));
  }
  std::printf("%s\n", JsonText(json).c_str());
  return absl::OkStatus();
}

}  // namespace

void AddDiffCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand("diff", "Says what differs between two checkpoints, whatever their layouts");
  command
      .AddOption("FIRST", arguments->first,
                 "JOB@STEP, or a path (with / or . in front) of what `cairn import` takes; JOB alone is its latest")
      .Required();
  command.AddOption("SECOND", arguments->second, "As FIRST").Required();
  command.AddOption("--root", arguments->root, "The storage");
  command.AddOption("--second-root", arguments->second_root, "The storage of SECOND, if it is another one");
  command.AddFlag("--all", arguments->all, "List also what is the same, with its digest");
  AddChoiceOptions(command, arguments->choice);
  AddReadingOptions(command, arguments->reading);
  command.Footer(
      "Examples:\n"
      "  cairn diff demo@1100 demo@1200 --root /checkpoints\n"
      "  cairn diff /models/llama demo@0 --root /checkpoints --mapping load.aoa\n"
      "Bits are compared, so two NaNs may differ. A digest is the SHA-256 of a tensor's elements, row-major. A mapping "
      "is that of FIRST.\n"
      "Exit status: 0 equal, 1 different or not comparable.");
  command.Action([arguments, &context] {
    const absl::Status status = WithNames(Diff(context, *arguments), arguments->first, arguments->root);
    if (!status.ok()) context.exit_status = ReportError(context, status);
  });
}

}  // namespace cairn::cli
