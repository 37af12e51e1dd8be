#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/base/counted.h"
#include "cli/base/interrupt.h"
#include "cli/base/progress_line.h"
#include "cli/base/terminal.h"
#include "cli/client/stored_checkpoint.h"
#include "cli/commands/commands.h"
#include "cli/commands/reading_options.h"
#include "cli/commands/tensor_choice.h"
#include "common/base/clock.h"
#include "common/base/digest.h"
#include "common/format/checkpoint_path.h"
#include "common/process/quantity.h"
#include "common/resources/open_files.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/tensor/fingerprint.h"
#include "foreign/compare/comparison.h"
#include "foreign/compare/name_groups.h"
#include "foreign/read/foreign_directory.h"
#include "store/open/open_storage.h"

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
  std::unique_ptr<Storage> storage;  // null for files of another library
  Manifest manifest;
};

// Returns whether the text is a path and not a job's name. No job's name begins like a path or has an empty part. The
// name of an existing directory counts as a path, unless the root has a job of that name.
bool IsPath(const std::string& text, const std::string& root) {
  if (text.starts_with("/") || text.starts_with(".") || text.ends_with("/") || !IsDirectoryRoot(text)) return true;
  std::error_code error;
  if (!std::filesystem::is_directory(text, error)) return false;
  return root.empty() || !std::filesystem::is_directory(std::filesystem::path(root) / text, error);
}

absl::StatusOr<Side> Open(const CommandContext& context, const std::string& text, const std::string& root) {
  Side side;
  if (IsPath(text, root)) {
    std::error_code error;
    side.name = IsDirectoryRoot(text) ? std::filesystem::absolute(text, error).string() : text;
    if (error)
      return MakeError(Reason::kBadRequest, absl::StrCat("no path: '", text, "'"),
                       {{"next", "Give a directory that holds a checkpoint, or a job and step as in demo@1200."}});
    auto manifest = ReadForeignDirectory(side.name);
    if (HasReason(manifest.status(), Reason::kFileMissing)) {
      return WithMetadata(manifest.status(),
                          {{"next", "Give a directory that holds a checkpoint, or a job and step as in demo@1200."}});
    }
    CAIRN_ASSIGN_OR_RETURN(side.manifest, std::move(manifest));
    return side;
  }
  CAIRN_ASSIGN_OR_RETURN(const CheckpointName name, ParseCheckpointName(text));
  auto stored = OpenCheckpoint(context, name, root);
  if (!stored.ok() && MetadataOf(stored.status()).contains("option")) {
    return Annotate(stored.status(), absl::StrCat(text, " is no path here, so it names a checkpoint"));
  }
  CAIRN_RETURN_IF_ERROR(stored.status());
  side.storage = std::move(stored->storage);
  side.manifest = std::move(stored->manifest);
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
  if (object) {
    json["digest"] = item->digest.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(DigestHex(item->digest));
  } else {
    json["fingerprint"] = item->fingerprint.has_value() ? nlohmann::ordered_json(FingerprintText(*item->fingerprint))
                                                        : nlohmann::ordered_json();
  }
  return json;
}

// JSON has no infinity.
nlohmann::ordered_json NumberToJson(const std::optional<double>& number) {
  if (!number.has_value()) return nullptr;
  return std::isinf(*number) ? nlohmann::ordered_json("Infinity") : nlohmann::ordered_json(*number);
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
    if (!name.object) {
      json["largest_difference"] = NumberToJson(name.largest_difference);
      json["largest_at"] = name.largest_difference.has_value() ? nlohmann::ordered_json(name.largest_at) : nullptr;
      json["nan_on_one_side"] = name.nans;
    }
  }
  return json;
}

nlohmann::ordered_json GroupToJson(const NameGroup& group, const std::vector<ComparedName>& names) {
  const ComparedName& first = names[group.names.front()];
  nlohmann::ordered_json json = {{"pattern", group.pattern},
                                 {"kind", first.object ? "object" : "tensor"},
                                 {"difference", DifferenceName(first.difference)},
                                 {"names", group.names.size()}};
  if (first.difference != Difference::kValues) return json;
  json["differing"] = group.differing;
  if (first.object) return json;
  const ComparedName* largest = group.largest.has_value() ? &names[*group.largest] : nullptr;
  json["largest_difference"] = NumberToJson(largest == nullptr ? std::nullopt : largest->largest_difference);
  json["largest_in"] = largest == nullptr ? nlohmann::ordered_json() : nlohmann::ordered_json(largest->name);
  json["nan_on_one_side"] = group.nans;
  return json;
}

std::string Text(const std::optional<ComparedItem>& item, bool object) {
  if (!item) return "-";
  if (object) return FormatSize(static_cast<int64_t>(item->bytes));
  return absl::StrCat(std::string(NameOf(item->dtype)), ShapeToString(item->shape));
}

// Returns the form that all items of a group share.
std::string FormText(const std::optional<ComparedItem>& item, bool object) {
  return !item ? "-" : object ? "object" : std::string(NameOf(item->dtype));
}

// Returns for example ", largest difference 0.5 at 17, 2 NaN on one side".
std::string HowFar(const std::optional<double>& largest, const std::string& where, uint64_t nans) {
  std::string text;
  if (largest.has_value()) text = absl::StrFormat(", largest difference %.6g %s", *largest, where);
  if (nans > 0) absl::StrAppend(&text, ", ", nans, " NaN on one side");
  return text;
}

std::string Detail(const ComparedName& name) {
  if (name.difference == Difference::kValues) {
    return absl::StrCat(Counted(name.differing, name.object ? "byte" : "element"), ", from ", name.first_differing,
                        HowFar(name.largest_difference, absl::StrCat("at ", name.largest_at), name.nans));
  }
  if (!name.first) return "";
  if (name.first->fingerprint.has_value()) return FingerprintText(*name.first->fingerprint);
  return name.first->digest.empty() ? "" : DigestHex(name.first->digest).substr(0, 16);
}

std::string DetailOf(const NameGroup& group, const std::vector<ComparedName>& names) {
  const ComparedName& first = names[group.names.front()];
  if (first.difference != Difference::kValues) return "";
  const ComparedName* largest = group.largest.has_value() ? &names[*group.largest] : nullptr;
  return absl::StrCat(
      Counted(group.differing, first.object ? "byte" : "element"),
      HowFar(largest == nullptr ? std::nullopt : largest->largest_difference,
             largest == nullptr ? "" : absl::StrCat("in ", largest->name, " at ", largest->largest_at), group.nans));
}

void AddRow(Table& table, const ComparedName& name) {
  table.Add({name.rank ? absl::StrCat(name.name, " (rank ", *name.rank, ")") : name.name,
             name.difference == Difference::kNone ? "" : DifferenceName(name.difference), Text(name.first, name.object),
             Text(name.second, name.object), Detail(name)},
            name.difference == Difference::kNone ? Colour::kNone : Colour::kRed);
}

// More names than this are shown by their patterns, not one per row.
constexpr size_t kMostRows = 50;

void AddGroups(Table& table, const std::vector<ComparedName>& names) {
  for (const NameGroup& group : GroupNames(names)) {
    const ComparedName& first = names[group.names.front()];
    if (group.names.size() == 1) {
      AddRow(table, first);
      continue;
    }
    table.Add({absl::StrCat(group.pattern, " (", group.names.size(), " names)"), DifferenceName(first.difference),
               FormText(first.first, first.object), FormText(first.second, first.object), DetailOf(group, names)},
              Colour::kRed);
  }
}

size_t UnreadCount(const std::vector<ComparedName>& names) {
  return static_cast<size_t>(
      std::ranges::count_if(names, [](const ComparedName& name) { return name.by_fingerprint; }));
}

void Print(const std::vector<ComparedName>& names, const Side& first, const Side& second, bool all, size_t differing) {
  Table table({"NAME", "DIFFERENCE", "FIRST", "SECOND", "WHAT"});
  if (!all && differing > kMostRows) {
    AddGroups(table, names);
  } else {
    for (const ComparedName& name : names) {
      if (all || name.difference != Difference::kNone) AddRow(table, name);
    }
  }
  if (all || differing > 0) table.Print(stdout);
  if (differing == 0) {
    const size_t unread = UnreadCount(names);
    std::printf("%s %s and %s: %s, bit for bit%s\n", Coloured(stdout, Colour::kGreen, "equal").c_str(),
                first.name.c_str(), second.name.c_str(), Counted(names.size(), "name").c_str(),
                unread == 0 ? ""
                            : absl::StrCat("; ", unread,
                                           " by the fingerprints of both manifests, without reading their files "
                                           "(`cairn verify` reads them)")
                                  .c_str());
  } else {
    std::printf("%s %s and %s: %zu of %s %s\n", Coloured(stdout, Colour::kRed, "different").c_str(), first.name.c_str(),
                second.name.c_str(), differing, Counted(names.size(), "name").c_str(),
                differing == 1 ? "differs" : "differ");
  }
}

absl::Status Diff(CommandContext& context, const Arguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(const int64_t memory, ParseSize(arguments.reading.memory));
  CAIRN_ASSIGN_OR_RETURN(const TensorChoice choice, ReadChoice(arguments.choice));
  // All files of both sides are open at the same time.
  RaiseOpenFileLimit();
  CAIRN_ASSIGN_OR_RETURN(const Side first, Open(context, arguments.first, arguments.root));
  const std::string& second_root = arguments.second_root.empty() ? arguments.root : arguments.second_root;
  CAIRN_ASSIGN_OR_RETURN(const Side second, Open(context, arguments.second, second_root));
  ComparedCheckpoint ours{first.storage.get(), &first.manifest, choice};
  ComparedCheckpoint theirs{second.storage.get(), &second.manifest, {}};
  // The patterns are for names of the first side. With a mapping the second side has other names.
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
  nlohmann::ordered_json json = {{"first", first.name},     {"second", second.name},
                                 {"equal", differing == 0}, {"compared", names->size()},
                                 {"differing", differing},  {"by_fingerprint", UnreadCount(*names)}};
  json["names"] = nlohmann::ordered_json::array();
  for (const ComparedName& name : *names) {
    if (arguments.all || name.difference != Difference::kNone) json["names"].push_back(NameToJson(name));
  }
  json["groups"] = nlohmann::ordered_json::array();
  for (const NameGroup& group : GroupNames(*names)) json["groups"].push_back(GroupToJson(group, *names));
  std::printf("%s\n", JsonText(json).c_str());
  return absl::OkStatus();
}

}  // namespace

void AddDiffCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand("diff", "Compares two checkpoints, also if their layouts differ");
  command
      .AddOption("FIRST", arguments->first,
                 "JOB@STEP, JOB (its latest checkpoint), or files for `cairn import`: a path beginning with / or ., or "
                 "s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
      .Required();
  command.AddOption("SECOND", arguments->second, "The other checkpoint, in the same form").Required();
  command.AddOption("--root", arguments->root, kRootToRead);
  command.AddOption("--second-root", arguments->second_root, "The root of SECOND, if it is another one");
  command.AddFlag("--all", arguments->all, "List every name with its fingerprint, also equal ones");
  AddChoiceOptions(command, arguments->choice);
  AddReadingOptions(command, arguments->reading);
  command.Footer(
      "Examples:\n"
      "  cairn diff demo@1100 demo@1200\n"
      "  cairn diff demo@1100 demo@1200 --root /checkpoints\n"
      "  cairn diff /models/llama demo@0 --root /checkpoints --mapping load.aoa\n"
      "Bits are compared, so two NaNs may differ. Tensors of which both checkpoints have the same "
      "fingerprint are not read. A mapping "
      "is that of FIRST.\n"
      "Exit status: 0 equal, 1 different or not comparable.");
  command.Action([arguments, &context] {
    const absl::Status status = WithNames(Diff(context, *arguments), arguments->first, arguments->root);
    if (!status.ok()) context.exit_status = ReportError(context, status);
  });
}

}  // namespace cairn::cli
