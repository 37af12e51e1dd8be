#include "corpus/sampler/data_path.h"

#include <cmath>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn::corpus {
namespace {

constexpr size_t kMostPrefixes = 32766;
constexpr size_t kMostOfExample = 200;

absl::Status BadDataPath(const std::string& fault,
                         const std::string& example = "30 a_text_document 70 b_text_document") {
  return MakeError(
      Reason::kBadRequest, absl::StrCat("the data path ", fault),
      {{"next", absl::StrCat("Give prefixes alone, or a positive weight before each, as ", example, ".")}});
}

bool IsNumber(const std::string& word) {
  double number;
  return absl::SimpleAtod(word, &number);
}

// Returns whether each word in a weight's place is a prefix, and each in a prefix's place a number: the wrong order.
bool IsTurnedRound(std::span<const std::string> words) {
  if (words.size() % 2 != 0) return false;
  for (size_t i = 0; i < words.size(); i += 2) {
    if (IsNumber(words[i]) || !IsNumber(words[i + 1])) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<DataPath> ParseDataPath(std::span<const std::string> words) {
  if (words.empty()) return BadDataPath("is empty");
  if (IsTurnedRound(words)) {
    std::string right;
    for (size_t i = 0; i < words.size() && right.size() < kMostOfExample; i += 2) {
      absl::StrAppend(&right, i == 0 ? "" : " ", words[i + 1], " ", words[i]);
    }
    return BadDataPath(absl::StrCat("has ", words[1], " behind ", words[0], ", but a weight comes before its prefix"),
                       absl::StrCat(right, right.size() < kMostOfExample ? "" : " ..."));
  }
  DataPath path;
  size_t no_weights = 0;
  for (size_t i = 0; words.size() % 2 == 0 && i < words.size(); i += 2) {
    double weight;
    if (absl::SimpleAtod(words[i], &weight)) {
      path.weights.push_back(weight);
    } else {
      ++no_weights;
    }
  }
  if (no_weights > 0 && !path.weights.empty()) {
    return BadDataPath(absl::StrCat("has ", path.weights.size(), " weights, but ", no_weights,
                                    " words in the places of weights are no numbers"));
  }
  for (size_t i = path.weights.empty() ? 0 : 1; i < words.size(); i += path.weights.empty() ? 1 : 2) {
    path.prefixes.emplace_back(absl::StripAsciiWhitespace(words[i]));
  }
  for (size_t i = 0; i < path.weights.size(); ++i) {
    if (path.weights[i] > 0 && std::isfinite(path.weights[i])) continue;
    return BadDataPath(absl::StrCat("gives ", path.prefixes[i], " the weight ", path.weights[i]));
  }
  if (path.prefixes.size() > kMostPrefixes) {
    return BadDataPath(absl::StrCat("has ", path.prefixes.size(), " prefixes; Megatron takes ", kMostPrefixes));
  }
  return path;
}

}  // namespace cairn::corpus
