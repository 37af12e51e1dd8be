// Decides, in BPE training for several groups of text (languages, say), which pairs merge, so that no group ends up
// with many more tokens than another.
#ifndef CAIRN_CORPUS_BPE_PARITY_ENGINE_H_
#define CAIRN_CORPUS_BPE_PARITY_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "corpus/bpe/merge_engine.h"
#include "corpus/bpe/merge_state.h"
#include "corpus/bpe/parity_choice.h"

namespace cairn::corpus {

// For each merge ParityChoice names a group. The pair that is most frequent in that group's words merges, in the words
// of all groups. How many tokens a group has is counted in its development words, if there are any, else in its words.
// Works once: add all words, then call Run. Not thread-safe, except that different threads may fill different shards of
// a group at the same time.
//
// TieBreak::kHuggingFace gives what tokenizers' ParityBpeTrainer makes: of equally frequent pairs that which is the
// greatest as text. Its order of ids, and the meaning of the options, are those of MergeEngine.
class ParityEngine {
 public:
  enum class Use { kWords, kDevelopmentWords };

  // With `development`, each group must get development words.
  ParityEngine(MergeOptions options, ParityOptions parity, size_t groups, bool development);
  ParityEngine(const ParityEngine&) = delete;
  ParityEngine& operator=(const ParityEngine&) = delete;

  // As those of MergeEngine, for the words of a group.
  size_t shards() const;
  void Reserve(size_t group, Use use, size_t shard, uint64_t words, uint64_t bytes);
  absl::Status AddWord(size_t group, Use use, size_t shard, std::string_view word, uint64_t count);
  uint64_t EstimatedBytes() const;
  absl::StatusOr<MergeResult> Run();

 private:
  const MergeOptions options_;
  const ParityOptions parity_;
  std::vector<std::unique_ptr<MergeState>> groups_;
  std::vector<std::unique_ptr<MergeState>> development_;  // by group, or empty
  std::unique_ptr<MergeState> together_;                  // the words of all groups, while they are needed
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_PARITY_ENGINE_H_
