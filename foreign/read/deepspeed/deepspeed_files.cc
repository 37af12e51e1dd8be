#include "foreign/read/deepspeed/deepspeed_files.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr std::string_view kModelEnding = "_model_states.pt";
constexpr std::string_view kLayerEnding = "-model_states.pt";
constexpr std::string_view kOptimizerEnding = "_optim_states.pt";

// The stem of a file's name, such as "bf16_zero_pp_rank_3_mp_rank_00" or "mp_rank_00".
struct Stem {
  std::string prefix;  // before "zero_pp_rank_"
  std::optional<uint32_t> rank;
  uint32_t part = 0;  // of the model
};

std::optional<uint32_t> TakeNumber(std::string_view& text) {
  size_t digits = 0;
  while (digits < text.size() && digits < 9 && absl::ascii_isdigit(static_cast<unsigned char>(text[digits]))) ++digits;
  uint32_t number = 0;
  if (digits == 0 || !absl::SimpleAtoi(std::string(text.substr(0, digits)), &number)) return std::nullopt;
  text.remove_prefix(digits);
  return number;
}

std::optional<Stem> ParseStem(std::string_view text) {
  constexpr std::string_view kRank = "zero_pp_rank_", kPart = "mp_rank_";
  Stem stem;
  if (const size_t at = text.find(kRank); at != text.npos) {
    stem.prefix = std::string(text.substr(0, at));
    text.remove_prefix(at + kRank.size());
    stem.rank = TakeNumber(text);
    if (!stem.rank || !text.starts_with('_')) return std::nullopt;
    text.remove_prefix(1);
    if (!stem.prefix.empty() && stem.prefix != "bf16_" && stem.prefix != "fp16_") return std::nullopt;
  }
  if (!text.starts_with(kPart)) return std::nullopt;
  text.remove_prefix(kPart.size());
  const auto part = TakeNumber(text);
  if (!part || !text.empty()) return std::nullopt;
  stem.part = *part;
  return stem;
}

// Reads a stem such as "layer_03-model_01", or "layer_03" of a pipeline without tensor parallelism.
std::optional<DeepSpeedFiles::Layer> ParseLayer(std::string_view text) {
  constexpr std::string_view kLayer = "layer_", kSlice = "-model_";
  if (!text.starts_with(kLayer)) return std::nullopt;
  text.remove_prefix(kLayer.size());
  DeepSpeedFiles::Layer layer;
  const auto index = TakeNumber(text);
  if (!index) return std::nullopt;
  layer.index = *index;
  if (text.starts_with(kSlice)) {
    text.remove_prefix(kSlice.size());
    const auto slice = TakeNumber(text);
    if (!slice) return std::nullopt;
    layer.slice = *slice;
  }
  return text.empty() ? std::optional(layer) : std::nullopt;
}

absl::Status Unsupported(const std::string& directory, const std::string& name, const std::string& what,
                         const std::string& next) {
  return MakeError(Reason::kUnsupported, absl::StrCat(directory, "/", name, " is of ", what),
                   {{"file", absl::StrCat(directory, "/", name)}, {"next", next}});
}

constexpr char kConvert[] =
    "Make a universal checkpoint of it (python -m deepspeed.checkpoint.ds_to_universal), and import that.";

using ByRank = std::map<uint32_t, std::string>;

// The files of one part of the model, by rank.
struct PartNames {
  ByRank models, optimizers;
  std::optional<std::string> whole;  // the only model file

  std::string Any() const {
    if (whole) return *whole;
    return !models.empty() ? models.begin()->second : optimizers.begin()->second;
  }
};

absl::Status Missing(const std::string& directory, const std::string& problem) {
  return MakeError(Reason::kFileMissing, absl::StrCat(directory, " has ", problem), {{"file", directory}});
}

// The names of ranks 0, 1, 2 and so on.
absl::StatusOr<std::vector<std::string>> InOrder(const ByRank& names, const std::string& directory) {
  std::vector<std::string> ordered;
  for (const auto& [rank, name] : names) {
    if (rank != ordered.size()) {
      return Missing(directory, absl::StrCat(name, ", but none of rank ", ordered.size()));
    }
    ordered.push_back(name);
  }
  return ordered;
}

absl::StatusOr<DeepSpeedFiles::Part> MakePart(const PartNames& names, bool is_universal, bool is_whole,
                                              const std::string& directory) {
  DeepSpeedFiles::Part part;
  CAIRN_ASSIGN_OR_RETURN(part.models, InOrder(names.models, directory));
  if (names.whole && part.models.empty()) part.models = {*names.whole};
  if (is_universal) return part;
  if (names.optimizers.empty()) {
    if (!names.whole || !is_whole) {
      return Missing(directory, absl::StrCat("no *_optim_states.pt beside ", names.Any(), ", where the weights are"));
    }
    return Unsupported(directory, *names.whole, "a checkpoint without ZeRO",
                       "Import that file itself: it is one of torch.save, and holds everything.");
  }
  CAIRN_ASSIGN_OR_RETURN(part.optimizers, InOrder(names.optimizers, directory));
  if (part.models.empty() || (!names.whole && part.models.size() != part.optimizers.size())) {
    return Missing(directory, absl::StrCat(part.optimizers.size(), " *_optim_states.pt and ", part.models.size(),
                                           " *_model_states.pt beside ", names.Any()));
  }
  return part;
}

}  // namespace

bool IsDeepSpeedName(const std::string& name) {
  return name.ends_with(kModelEnding) || name.ends_with(kLayerEnding) || name.ends_with(kOptimizerEnding);
}

absl::StatusOr<DeepSpeedFiles> DeepSpeedFilesAmong(const std::vector<std::string>& names, bool is_universal,
                                                   const std::string& directory) {
  DeepSpeedFiles files;
  files.is_universal = is_universal;
  std::map<uint32_t, PartNames> parts;
  std::optional<std::string> foreign;  // one of experts
  const auto twice = [&](const std::string& name, const std::string& other) {
    return MakeError(
        Reason::kBadForeignFile, absl::StrCat(directory, " holds ", name, " and ", other, ", of several saves"),
        {{"file", absl::StrCat(directory, "/", name)}, {"next", "Take away the files of the earlier save."}});
  };
  for (const std::string& name : names) {
    if (!IsDeepSpeedName(name)) continue;
    if (name.ends_with(kLayerEnding)) {
      auto layer = ParseLayer(std::string_view(name).substr(0, name.size() - kLayerEnding.size()));
      if (!layer) {
        foreign = name;
        continue;
      }
      layer->name = name;
      files.layers.push_back(*std::move(layer));
      continue;
    }
    const bool optimizer = name.ends_with(kOptimizerEnding);
    const auto stem =
        ParseStem(std::string_view(name).substr(0, name.size() - (optimizer ? kOptimizerEnding : kModelEnding).size()));
    if (!stem || (optimizer && !stem->rank)) {
      foreign = name;
      continue;
    }
    PartNames& part = parts[stem->part];
    if (!stem->rank) {
      if (part.whole) return twice(name, *part.whole);
      part.whole = name;
    } else {
      ByRank& ranks = optimizer ? part.optimizers : part.models;
      const auto [place, fresh] = ranks.try_emplace(*stem->rank, name);
      if (!fresh) return twice(name, place->second);
    }
  }
  // The parameters of a universal checkpoint are whole. Of the model's files only those without experts are used.
  if (is_universal) files.layers.clear();
  if (is_universal && foreign) return files;
  if (foreign) return Unsupported(directory, *foreign, "a model with experts, or of another program", kConvert);
  const bool with_zero =
      std::any_of(parts.begin(), parts.end(), [](const auto& part) { return !part.second.optimizers.empty(); });
  if (parts.size() > 1 && !with_zero && !is_universal) {
    return Unsupported(directory, parts.begin()->second.Any(), "a model in parallel parts without ZeRO",
                       "Save it with ZeRO of stage 1, or without tensor and pipeline parallelism.");
  }
  for (const auto& [number, part_names] : parts) {
    if (number != files.parts.size()) {
      return Missing(directory, absl::StrCat(part_names.Any(), ", but nothing of part ", files.parts.size(),
                                             " of the model (mp_rank)"));
    }
    CAIRN_ASSIGN_OR_RETURN(DeepSpeedFiles::Part part, MakePart(part_names, is_universal, parts.size() == 1, directory));
    files.parts.push_back(std::move(part));
  }
  if (is_universal && std::any_of(files.parts.begin(), files.parts.end(),
                                  [](const DeepSpeedFiles::Part& part) { return part.models.empty(); })) {
    files.parts.clear();
  }
  if (files.parts.empty() && !is_universal) return Missing(directory, "layers, but no *_optim_states.pt");
  std::sort(files.layers.begin(), files.layers.end());
  for (size_t i = 1; i < files.layers.size(); ++i) {
    const DeepSpeedFiles::Layer &each = files.layers[i], &last = files.layers[i - 1];
    if (each.index == last.index && each.slice == last.slice) return twice(each.name, last.name);
  }
  return files;
}

}  // namespace cairn
