// Decides, in BPE training, which pairs merge and in which order.
//
// It computes algorithm 1 of Sennrich, Haddow and Birch, "Neural Machine Translation of Rare Words with Subword Units"
// (ACL 2016), incrementally (merge_state.h).
#ifndef CAIRN_CORPUS_BPE_MERGE_ENGINE_H_
#define CAIRN_CORPUS_BPE_MERGE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "corpus/bpe/merge_state.h"
#include "corpus/bpe/merge_veto.h"

namespace cairn::corpus {

enum class TieBreak {
  kBytes,        // of equally frequent pairs, the greatest (left bytes, right bytes) merges first
  kHuggingFace,  // the smallest (left id, right id) merges first; the rest too is as in tokenizers' BpeTrainer
};

struct MergeOptions {
  TieBreak tie_break = TieBreak::kBytes;
  uint64_t min_frequency = 1;  // a rarer pair does not merge; 0 counts as 1
  // The number of all merges (kBytes), or of all tokens besides the 256 bytes (kHuggingFace).
  uint32_t wanted = 0;
  // Merges that are done first, whatever their counts, as pairs of token bytes. They extend an existing vocabulary.
  std::vector<std::pair<std::string, std::string>> first;
  MergeVeto veto;        // no pair merges that it refuses, unless it is one of `first`
  uint32_t threads = 1;  // the number of threads that merge; the result does not depend on it
  // Called now and then with the state, whose merges are those made so far. If it fails, so does the run.
  std::function<absl::Status(const MergeState&)> checkpoint;
  // Called as often with the number of merges made. If it returns false, the run ends with CANCELLED (INTERRUPTED).
  std::function<bool(uint32_t)> progress;
};

// What the engines have in common. These return the options of a state; how many of the wanted ones are made; and
// CANCELLED (INTERRUPTED), if `progress` says so.
MergeState::Options ToStateOptions(const MergeOptions& options);
uint64_t MadeFor(const MergeOptions& options, const MergeState& state);
absl::Status ReportProgress(const MergeOptions& options, const MergeState& state);  // also calls `checkpoint`

// Works once: call AddWord for every word, then Run. Not thread-safe, except that different threads may fill different
// shards at the same time.
class MergeEngine {
 public:
  explicit MergeEngine(MergeOptions options);
  MergeEngine(const MergeEngine&) = delete;
  MergeEngine& operator=(const MergeEngine&) = delete;

  // Returns the number of shards, in which the words are merged. The shards should be of about equal size; it does not
  // matter which word is in which shard.
  size_t shards() const;

  // Makes room in a shard for `words` words, which have `bytes` bytes together. It need not be called.
  void Reserve(size_t shard, uint64_t words, uint64_t bytes);

  // Adds a word, which must not be empty. If a word is given twice, its counts add up. RESOURCE_EXHAUSTED
  // (MEMORY_LIMIT): the shard has more than 4 Gi bytes of distinct words.
  absl::Status AddWord(size_t shard, std::string_view word, uint64_t count);

  // Estimates the memory that Run() will need for the words given so far.
  uint64_t EstimatedBytes() const;

  // INVALID_ARGUMENT (BAD_TOKENIZER): `first` merges a token that no earlier merge made.
  // CANCELLED (INTERRUPTED). Else the errors of the veto.
  absl::StatusOr<MergeResult> Run();

 private:
  const MergeOptions options_;
  MergeState state_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_MERGE_ENGINE_H_
