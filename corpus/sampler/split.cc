#include "corpus/sampler/split.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "corpus/sampler/weights.h"

namespace cairn::corpus {
namespace {

absl::Status BadSplit(const std::string& text, const std::string& fault) {
  return MakeError(Reason::kBadRequest, absl::StrCat("--split \"", text, "\" ", fault),
                   {{"next", "Give the shares of training, validation and test, as --split 99,1,0."}});
}

}  // namespace

absl::StatusOr<SplitMatrix> ParseSplit(const std::string& text) {
  // Megatron takes everything else for the space between numbers, also a minus, or letters by mistake.
  constexpr std::string_view kOfNumbers = ".0123456789", kBetween = ",;:/| \t";
  if (const size_t odd = text.find_first_not_of(absl::StrCat(std::string(kOfNumbers), std::string(kBetween)));
      odd != text.npos) {
    return BadSplit(text, absl::StrCat("has \"", text.substr(odd, text.find_first_of(kBetween, odd) - odd),
                                       "\", where a number is expected"));
  }
  std::vector<double> weights;
  for (size_t begin = text.find_first_of(kOfNumbers); begin != text.npos;) {
    const size_t end = text.find_first_not_of(kOfNumbers, begin);
    const std::string number = text.substr(begin, end - begin);
    double weight;
    if (!absl::SimpleAtod(number, &weight) || !std::isfinite(weight)) {
      return BadSplit(text, absl::StrCat("has no number at \"", number, "\""));
    }
    weights.push_back(weight);
    begin = text.find_first_of(kOfNumbers, end);
  }
  if (weights.size() > kSplits) return BadSplit(text, "has more than three numbers");
  weights.resize(kSplits, 0);
  if (NumpySum(weights) == 0) return BadSplit(text, "leaves nothing to any split");
  SplitMatrix matrix;
  double begin = 0;
  const std::vector<double> shares = Normalize(weights);
  for (size_t split = 0; split < kSplits; ++split) {
    const double end = begin + shares[split];
    if (end > begin) matrix[split] = SplitRange{begin, end};
    begin = end;
  }
  return matrix;
}

uint64_t SequenceAt(double share, uint64_t sequences) {
  return static_cast<uint64_t>(std::nearbyint(share * static_cast<double>(sequences)));
}

}  // namespace cairn::corpus
