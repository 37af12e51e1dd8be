#include "corpus/bpe/parity_choice.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace cairn::corpus {

ParityChoice::ParityChoice(const ParityOptions& options, std::vector<uint64_t> bytes, std::vector<uint64_t> tokens)
    : options_(options), bytes_(std::move(bytes)), tokens_(std::move(tokens)), exhausted_(tokens_.size()) {}

double ParityChoice::NeedOf(size_t group) const {
  const auto tokens = static_cast<double>(tokens_[group]);
  if (options_.ratios.empty()) return tokens;
  if (tokens == 0) return -std::numeric_limits<double>::infinity();
  return -(static_cast<double>(bytes_[group]) / tokens / options_.ratios[group]);
}

std::optional<size_t> ParityChoice::Next() {
  std::vector<size_t> groups;
  for (size_t group = 0; group < tokens_.size(); ++group) {
    if (!exhausted_[group]) groups.push_back(group);
  }
  if (groups.empty()) return std::nullopt;
  std::stable_sort(groups.begin(), groups.end(), [this](size_t a, size_t b) { return NeedOf(a) > NeedOf(b); });
  if (options_.window == 0) return groups.front();
  const double most = options_.alpha / static_cast<double>(tokens_.size());
  const auto waits = [&](size_t group) {
    const auto turns = static_cast<double>(std::count(turns_.begin(), turns_.end(), group));
    return turns / static_cast<double>(options_.window) > most;
  };
  // If all have to wait, it is the turn of that in the least need, as in the authors' trainer.
  const auto found = std::find_if_not(groups.begin(), groups.end(), waits);
  const size_t chosen = found == groups.end() ? groups.back() : *found;
  turns_.push_back(chosen);
  if (turns_.size() > options_.window) turns_.pop_front();
  return chosen;
}

}  // namespace cairn::corpus
