#include "import/deepspeed_files.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

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

absl::Status Unsupported(const std::string& directory, const std::string& name, const std::string& what,
                         const std::string& next) {
  return MakeError(Reason::kUnsupported, absl::StrCat(directory, "/", name, " is of ", what),
                   {{"file", absl::StrCat(directory, "/", name)}, {"next", next}});
}

constexpr char kConvert[] =
    "Make a universal checkpoint of it (python -m deepspeed.checkpoint.ds_to_universal), and import that.";

using ByRank = std::map<uint32_t, std::string>;

// The names of ranks 0, 1, 2 and so on.
absl::StatusOr<std::vector<std::string>> InOrder(const ByRank& names, const std::string& directory) {
  std::vector<std::string> ordered;
  for (const auto& [rank, name] : names) {
    if (rank != ordered.size()) {
      return MakeError(Reason::kFileMissing,
                       absl::StrCat(directory, " has ", name, ", but none of rank ", ordered.size()),
                       {{"file", absl::StrCat(directory, "/", name)}});
    }
    ordered.push_back(name);
  }
  return ordered;
}

}  // namespace

bool IsDeepSpeedName(const std::string& name) {
  return name.ends_with(kModelEnding) || name.ends_with(kLayerEnding) || name.ends_with(kOptimizerEnding);
}

absl::StatusOr<DeepSpeedFiles> DeepSpeedFilesAmong(const std::vector<std::string>& names, bool is_universal,
                                                   const std::string& directory) {
  DeepSpeedFiles files;
  files.is_universal = is_universal;
  ByRank models, optimizers;
  std::optional<std::string> whole, foreign;  // the only model file; one of a part of the model
  for (const std::string& name : names) {
    if (!IsDeepSpeedName(name)) continue;
    const bool optimizer = name.ends_with(kOptimizerEnding);
    const auto stem = name.ends_with(kLayerEnding)
                          ? std::nullopt
                          : ParseStem(std::string_view(name).substr(
                                0, name.size() - (optimizer ? kOptimizerEnding : kModelEnding).size()));
    if (!stem || stem->part != 0 || (optimizer && !stem->rank)) {
      foreign = name;
    } else if (!stem->rank) {
      whole = name;
    } else if (!(optimizer ? optimizers : models).try_emplace(*stem->rank, name).second) {
      return MakeError(
          Reason::kBadForeignFile,
          absl::StrCat(directory, " holds ", name, " and ", (optimizer ? optimizers : models)[*stem->rank],
                       ", of several saves"),
          {{"file", absl::StrCat(directory, "/", name)}, {"next", "Take away the files of the earlier save."}});
    }
  }
  if (is_universal) {
    // Its parameters are whole; of the model's states only those of one that was not cut are used.
    if (foreign) return files;
    optimizers.clear();
  } else if (foreign) {
    return Unsupported(directory, *foreign, "a model that is cut into parallel parts", kConvert);
  } else if (optimizers.empty()) {
    const std::string name = whole.value_or(models.empty() ? "" : models.begin()->second);
    if (!whole) {
      return MakeError(Reason::kFileMissing,
                       absl::StrCat(directory, " has no *_optim_states.pt, where the weights are"),
                       {{"file", absl::StrCat(directory, "/", name)}});
    }
    return Unsupported(directory, name, "a checkpoint without ZeRO",
                       "Import that file itself: it is one of torch.save, and holds everything.");
  }
  CAIRN_ASSIGN_OR_RETURN(files.optimizers, InOrder(optimizers, directory));
  CAIRN_ASSIGN_OR_RETURN(files.models, InOrder(models, directory));
  if (whole && files.models.empty()) files.models = {*whole};
  if (!is_universal && (files.models.empty() || (!whole && files.models.size() != files.optimizers.size()))) {
    return MakeError(Reason::kFileMissing,
                     absl::StrCat(directory, " has ", files.optimizers.size(), " *_optim_states.pt and ",
                                  files.models.size(), " *_model_states.pt"),
                     {{"file", directory}});
  }
  return files;
}

}  // namespace cairn
