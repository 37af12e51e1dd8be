// Chooses, in parity-aware BPE training, for which group of text the next pair merges.
#ifndef CAIRN_CORPUS_BPE_PARITY_CHOICE_H_
#define CAIRN_CORPUS_BPE_PARITY_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace cairn::corpus {

// The algorithm is that of Foroutan, Meister, Paul, Niklaus, Ahmadi, Bosselut and Sennrich, "Parity-Aware Byte-Pair
// Encoding: Improving Cross-lingual Fairness in Tokenization" (2025), with its variants.
struct ParityOptions {
  // So many merges are first chosen by the counts of all groups together (the hybrid variant).
  uint32_t together = 0;
  // A group that had more than `alpha` / groups of the last `window` turns has to wait (the window variant). 0 means
  // that no group waits.
  uint32_t window = 0;
  double alpha = 2;
  // By group, the number of bytes in a token that is wanted, of which only the proportions matter. Empty: the groups
  // are to have equally many tokens.
  std::vector<double> ratios;
};

// A pure decision: the group in need is that with the most tokens or, with ratios, that whose bytes per token are the
// smallest part of its ratio; the first of equal ones. Not thread-safe.
class ParityChoice {
 public:
  // `bytes` and `tokens` are those of each group's text before the first choice.
  ParityChoice(const ParityOptions& options, std::vector<uint64_t> bytes, std::vector<uint64_t> tokens);

  // Returns the group whose turn it is, or nothing if all are exhausted.
  std::optional<size_t> Next();
  // Says that a group has nothing to merge any more. It gets no turn from now on.
  void Exhaust(size_t group) { exhausted_[group] = true; }
  // Says that a group's text now has `less` tokens less.
  void Shorten(size_t group, uint64_t less) { tokens_[group] -= less; }

 private:
  double NeedOf(size_t group) const;

  const ParityOptions options_;
  const std::vector<uint64_t> bytes_;
  std::vector<uint64_t> tokens_;
  std::vector<bool> exhausted_;
  std::deque<size_t> turns_;  // the last ones, at most `window`
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_PARITY_CHOICE_H_
