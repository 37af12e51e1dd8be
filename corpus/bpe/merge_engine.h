// The heart of BPE training: it decides which pairs merge, and in which order.
//
// Sennrich, Haddow and Birch, "Neural Machine Translation of Rare Words with Subword Units" (ACL 2016), algorithm 1,
// computed incrementally: every pair has its count and a list of the places where it stood when it came into being. A
// merge visits only its own places, and what it does to neighbouring pairs is added up per neighbour before the counts
// are touched. The next pair comes from a heap whose stale entries are corrected when they surface.
// The words are in shards that work side by side on each merge (word_shard.h); the counts are in one place.
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

namespace cairn::corpus {

enum class TieBreak {
  kBytes,        // of equally frequent pairs the greatest (left bytes, right bytes) merges first
  kHuggingFace,  // the smallest (left id, right id), and everything else as tokenizers' BpeTrainer does it
};

struct Merge {
  uint32_t left;
  uint32_t right;
  uint32_t result;
};

struct MergeResult {
  // The bytes of every token by internal id: the 256 single bytes (kBytes: in byte order; kHuggingFace: in the order of
  // their printable characters), then new tokens in the order of their making.
  std::vector<std::string> tokens;
  // In order. Two merges can make the same string; it is one token.
  std::vector<Merge> merges;
};

struct MergeOptions {
  TieBreak tie_break = TieBreak::kBytes;
  uint64_t min_frequency = 1;  // a pair that is rarer does not merge; 0 is as 1
  // kBytes: how many merges in all. kHuggingFace: how many tokens besides the 256 bytes.
  uint32_t wanted = 0;
  // Merges done first, whatever their counts: an existing vocabulary that is extended. By token bytes.
  std::vector<std::pair<std::string, std::string>> first;
  uint32_t threads = 1;  // that merge; the result does not depend on it
  // Called now and then with the number of merges made; false ends with CANCELLED (INTERRUPTED).
  std::function<bool(uint32_t)> progress;
};

// One use: AddWord for every word, then Run once. Not thread-safe, except that different shards can be filled by
// different threads at the same time.
class MergeEngine {
 public:
  MergeEngine(MergeOptions options);
  ~MergeEngine();
  MergeEngine(const MergeEngine&) = delete;
  MergeEngine& operator=(const MergeEngine&) = delete;

  // The words are merged in so many shards, which should be of about equal size. It does not matter which word is in
  // which shard.
  size_t shards() const;

  // Makes room in a shard for `words` words, which have `bytes` bytes together. Optional.
  void Reserve(size_t shard, uint64_t words, uint64_t bytes);

  // `word` is not empty. If a word is given twice, its counts add up.
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT): more than 4 Gi bytes of distinct words in the shard.
  absl::Status AddWord(size_t shard, std::string_view word, uint64_t count);

  // Roughly the memory that Run() will need for the words given so far.
  uint64_t EstimatedBytes() const;

  // INVALID_ARGUMENT (BAD_TOKENIZER): `first` merges a token that no earlier merge made.
  // CANCELLED (INTERRUPTED).
  absl::StatusOr<MergeResult> Run();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_MERGE_ENGINE_H_
