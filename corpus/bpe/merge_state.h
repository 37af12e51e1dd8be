// Keeps words, and the counts of the pairs in them, while pairs merge.
//
// Every pair has its count and a list of the places where it stood when it came into being. A merge visits only its own
// places, and adds up per neighbour what it does to neighbouring pairs before it changes their counts. The next pair
// comes from a heap, whose stale entries are corrected when they come to the top. The words are in shards that work
// side by side on each merge (word_shard.h); the counts are in one place.
#ifndef CAIRN_CORPUS_BPE_MERGE_STATE_H_
#define CAIRN_CORPUS_BPE_MERGE_STATE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "corpus/bpe/merge_schedule.h"
#include "corpus/bpe/merge_veto.h"
#include "corpus/bpe/pair_table.h"
#include "corpus/bpe/step_team.h"
#include "corpus/bpe/word_shard.h"

namespace cairn::corpus {

struct Merge {
  uint32_t left;
  uint32_t right;
  uint32_t result;
};

struct MergeResult {
  // The bytes of every token by internal id: first the 256 single bytes (in byte order, or in the order of their
  // printable characters), then new tokens in the order in which they were made.
  std::vector<std::string> tokens;
  // The merges in order. Two merges can make the same string, which is then one token.
  std::vector<Merge> merges;
};

// Not thread-safe, except that different threads may fill different shards at the same time.
class MergeState {
 public:
  // Says which of equally frequent pairs comes first.
  enum class Ties {
    kGreatestBytes,  // the greatest (left bytes, right bytes)
    kGreatestText,   // the greatest (left, right) as they are written in the byte-level alphabet
    kSmallestIds,    // the smallest (left id, right id)
  };

  struct Options {
    Ties ties = Ties::kGreatestBytes;
    bool bytes_by_text = false;  // the ids of bytes are in the order of their printable characters, not in byte order
    uint64_t min_frequency = 1;
    uint32_t most_merges = 0;  // those of Begin() included
    uint32_t shards = 1;
    // MergeAll() may be asked for pairs that did not come from Next(). Then rare pairs too are followed from the begin.
    bool any_pair = false;
    MergeVeto veto;  // no pair merges that it refuses
  };

  // A pair that could merge next.
  struct Candidate {
    uint64_t count;  // when it came onto the heap
    uint64_t
        left_prefix;  // the left token's first bytes, big-endian, which settle most ties without a look at the rest
    uint32_t left;
    uint32_t right;
    uint32_t set;
  };

  explicit MergeState(Options options);

  WordShard& shard(size_t i) { return *shards_[i]; }
  size_t shards() const { return shards_.size(); }
  uint64_t word_bytes() const;
  uint64_t EstimatedBytes() const;
  // Lets a team of as many threads as there are shards do the larger steps. It must outlive the state. One thread alone
  // is quicker if the words have fewer than kTeamBytes.
  static constexpr uint64_t kTeamBytes = uint64_t{1} << 20;
  void UseTeam(StepTeam* team) { team_ = team; }

  // Does `first`, pairs of token bytes, whatever their counts, and counts what then stands in the words. Must be called
  // once, when all words are there. INVALID_ARGUMENT (BAD_TOKENIZER): `first` merges a token that no earlier merge
  // made.
  absl::Status Begin(const std::vector<std::pair<std::string, std::string>>& first);
  // Finds the pair that merges next; returns false if none is left that is frequent enough. Also fails as the veto.
  absl::StatusOr<bool> Next(Candidate& best);
  // Merges the pair that Next() found: at all its places, or, with kSmallestIds, as Hugging Face's trainer does.
  absl::Status MergeBest(const Candidate& best);
  // Merges any pair of tokens at all its places.
  absl::Status MergeAll(uint32_t left, uint32_t right);

  // Return how many bytes and tokens the words have (a word with count n counts n times).
  uint64_t TextBytes() const;
  uint64_t Tokens() const;
  // Returns how often the last merge was done.
  uint64_t merged() const;
  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<Merge>& merges() const { return merges_; }
  // Ends the state's use.
  MergeResult TakeResult();

 private:
  // Says what the current merge does, in all shards, to the pairs with one neighbour.
  struct Change {
    uint64_t weight = 0;
    uint64_t places = 0;
  };
  struct Side {
    std::vector<uint32_t> touched;
    std::vector<Change> changes;  // by token
    std::vector<uint32_t> sets;   // by token: the set of the new pair with that token

    void Clear();
    void Add(std::span<const WordShard::Touched> part);
  };

  uint32_t AddToken(std::string bytes);
  const std::string& KeyOf(uint32_t token) const {
    return options_.ties == Ties::kGreatestText ? keys_[token] : tokens_[token];
  }
  void InShards(bool with_team, absl::FunctionRef<void(WordShard&, size_t)> work);
  absl::Status ShardStatus() const;
  uint32_t NewSet(PairTable::Slot& slot);
  uint64_t CountOfRank(uint64_t rank) const;
  absl::StatusOr<MergeSchedule> Schedule(const std::vector<std::pair<std::string, std::string>>& first);
  absl::Status FindBytePairs();
  absl::Status Track(uint64_t least, uint32_t token);
  bool Before(const Candidate& a, const Candidate& b) const;
  void Push(uint64_t pair, uint32_t set, int64_t count);
  void PushCandidate(const Candidate& candidate);
  std::vector<uint32_t> AllSets(uint64_t pair) const;
  absl::Status DoMerge(uint32_t left, uint32_t right, std::span<const uint32_t> sets, bool whole_words);
  void CountChanges(const WordShard::Step& step, bool again);
  void CountNewPairs(Side& side, bool is_left, const WordShard::Step& step, bool again, uint64_t more_of_result);
  void Forget(uint64_t pair);

  const Options options_;
  std::array<uint32_t, 256> id_of_byte_;

  std::vector<std::string> tokens_;
  std::vector<std::string> keys_;  // kGreatestText: strings that compare as the tokens' texts do
  std::vector<uint32_t> length_;
  std::vector<uint64_t> prefix_;  // by token, of its key
  absl::flat_hash_map<std::string, uint32_t> id_of_;
  std::vector<Merge> merges_;

  std::vector<std::unique_ptr<WordShard>> shards_;
  StepTeam* team_ = nullptr;
  std::vector<uint32_t> previous_set_;  // by set: the set that the same pair had before

  PairTable pairs_;
  // A new pair whose count is below this is not in `pairs_` and has no list, because most such pairs never merge. When
  // all others have merged, Track() finds them in the words. If the guess is too low it costs memory, if it is too high
  // it costs another pass over the words.
  uint64_t tracked_ = 1;
  int made_again_ = 0;  // tokens that a second merge made once more
  // A heap of the candidates with a count of at least `floor_`. The many rarer ones wait in `rare_` until they are
  // needed.
  std::vector<Candidate> heap_;
  std::vector<Candidate> rare_;
  uint64_t floor_ = 0;

  Side left_, right_;
  uint64_t pending_places_ = 0;  // places of the last merge's sets, which the shards have yet to list
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_MERGE_STATE_H_
