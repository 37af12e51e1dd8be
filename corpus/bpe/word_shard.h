// Holds one thread's share of the words in BPE training, and the places where pairs stand in them.
#ifndef CAIRN_CORPUS_BPE_WORD_SHARD_H_
#define CAIRN_CORPUS_BPE_WORD_SHARD_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "corpus/bpe/huge_pages.h"
#include "corpus/bpe/merge_schedule.h"
#include "corpus/bpe/pair_table.h"
#include "corpus/bpe/place_lists.h"

namespace cairn::corpus {

// A shard knows the tokens of its words and finds places. The engine adds up what the shards report, and decides which
// pair merges and which pairs are worth a list. The engine numbers "sets": a set has the places, in all shards, of one
// pair that came into being together. A shard keeps its part of a set as one ascending list. Not thread-safe; different
// shards are independent of each other.
class WordShard {
 public:
  static constexpr uint32_t kNoSet = ~uint32_t{0};
  static constexpr uint32_t kAnyToken = ~uint32_t{0};

  // Counts how often a pair stands in the words (a word with count n counts n times), and at how many places.
  struct Tally {
    uint64_t weight = 0;
    uint32_t places = 0;
  };
  using BytePairs = std::array<Tally, 256 * 256>;    // by left << 8 | right
  using ByteSets = std::array<uint32_t, 256 * 256>;  // by left << 8 | right, the number of the set
  using Pairs = absl::flat_hash_map<uint64_t, Tally>;
  using PairSets = absl::flat_hash_map<uint64_t, uint32_t>;

  // Says what the last merge did to the pairs with one neighbour on one side.
  struct Touched {
    uint32_t neighbour;
    uint32_t places;
    uint64_t weight;
  };

  struct Step {
    uint32_t left;
    uint32_t right;
    uint32_t result;
    std::span<const uint32_t> sets;  // the sets of the pair, which the step gives up
    bool whole_words;                // merges at all places in the words of the sets, not only at those of the sets
  };

  // `lengths` has the lengths of all tokens in bytes, and grows while the shard is in use. If there are at most 2^16 -
  // 2 `tokens`, a cell takes two bytes, else four.
  static std::unique_ptr<WordShard> Make(uint64_t tokens, const std::vector<uint32_t>& lengths);
  virtual ~WordShard() = default;
  WordShard(const WordShard&) = delete;
  WordShard& operator=(const WordShard&) = delete;

  // Makes room for `words` words with `bytes` bytes together. It need not be called.
  void Reserve(uint64_t words, uint64_t bytes);
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT): there are more than 4 Gi bytes of words.
  absl::Status AddWord(std::string_view word, uint64_t count);
  // Returns the bytes of the words added so far.
  uint64_t word_bytes() const { return bytes_.size(); }
  // Estimates the memory that merging will need for the words added so far.
  uint64_t EstimatedBytes() const { return bytes_.size() * 16; }

  // Makes tokens of the bytes of all words, and does the merges of `first`. Must be called after all words were added.
  virtual void Arrange(const std::array<uint32_t, 256>& id_of_byte, const MergeSchedule& first) = 0;
  // Return how many bytes and tokens the words have (a word with count n counts n times).
  uint64_t text_bytes() const { return text_bytes_; }
  virtual uint64_t Tokens() const = 0;
  // Returns pairs of a count and the number of words with that count, by descending count.
  const std::vector<std::pair<uint64_t, uint64_t>>& counts() const { return counts_; }

  // Adds the pairs of the words to `tallies`. All tokens must be bytes.
  virtual void TallyBytePairs(BytePairs& tallies) const = 0;
  // Makes the lists of the pairs that have a set. `tallies` must be those of this shard.
  virtual void ListBytePairs(const BytePairs& tallies, const ByteSets& sets) = 0;

  // Returns the pairs that are not in `known`: all of them, or those with this token.
  virtual Pairs FindPairs(uint32_t token, const PairTable& known) const = 0;
  // Makes the lists of pairs that were found. `found` is what FindPairs() returned; `sets` may lack some of these.
  virtual void ListPairs(const Pairs& found, const PairSets& sets) = 0;

  // Makes the lists of the pairs that the last merge brought into being. The arguments have their sets by neighbour,
  // and kNoSet for none.
  void MakeLists(const std::vector<uint32_t>& left_sets, const std::vector<uint32_t>& right_sets);
  // Puts `result` in place of (left, right) wherever these still stand. MakeLists() must have been called for the step
  // before.
  virtual void Merge(const Step& step) = 0;

  // Return the neighbours of the last merge, to the left and to the right. Each neighbour appears once.
  std::span<const Touched> left() const { return left_.touched; }
  std::span<const Touched> right() const { return right_.touched; }
  // Says how often `result` came to stand before a `result` that was there. Those have no weight in left().
  uint64_t before_result() const { return before_result_; }
  // Says how often the last merge was done.
  uint64_t merged() const { return merged_; }
  // Returns the number of places that the lists of the sets have in this shard.
  uint64_t PlacesOf(std::span<const uint32_t> sets) const;

  // RESOURCE_EXHAUSTED (MEMORY_LIMIT): the pairs had more than 4 Gi places, and the shard cannot be used any more.
  const absl::Status& status() const { return status_; }
  void Fail(const absl::Status& error) { status_.Update(error); }

 protected:
  static constexpr uint32_t kUntouched = ~uint32_t{0};

  // A place where the current merge brings a pair into being. `touched` is the index of the neighbour.
  struct Event {
    uint32_t touched;
    uint32_t position;
  };

  struct Side {
    std::vector<Touched> touched;
    std::vector<uint32_t> index;  // by token, into `touched`, or kUntouched
    HugeVector<Event> events;     // as many as were counted, and some room
    size_t event_count = 0;
    std::vector<uint32_t*> next;  // by index: where the next place goes

    void Begin(size_t tokens, size_t most_events);
    void Record(uint32_t neighbour, uint32_t position, uint64_t weight) {
      uint32_t i = index[neighbour];
      if (i == kUntouched) {
        i = index[neighbour] = static_cast<uint32_t>(touched.size());
        touched.push_back({neighbour, 0, 0});
      }
      ++touched[i].places;
      touched[i].weight += weight;
      events[event_count++] = {i, position};
    }
  };

  explicit WordShard(const std::vector<uint32_t>& lengths) : lengths_(lengths) {}

  // Returns the words by descending count.
  std::vector<uint32_t> Ranked() const;
  std::string_view WordBytes(uint32_t word) const;
  // Makes room for the shard's part of a set. Returns null if there is no more (see status()).
  uint32_t* NewList(uint32_t set, uint32_t places);
  void FreeList(uint32_t set);
  std::span<const uint32_t> ListOf(uint32_t set) const;
  void MakeListsOf(Side& side, const std::vector<uint32_t>& sets);

  const std::vector<uint32_t>& lengths_;
  // The words as they were added: their bytes one after the other, where each ends, and their counts.
  HugeVector<char> bytes_;
  std::vector<uint32_t> ends_;
  std::vector<uint64_t> word_counts_;

  std::vector<std::pair<uint64_t, uint64_t>> counts_;
  PlaceLists lists_;
  std::vector<uint32_t> list_of_set_;
  Side left_, right_;
  uint64_t before_result_ = 0;
  uint64_t merged_ = 0;
  uint64_t text_bytes_ = 0;
  uint64_t single_bytes_ = 0;  // those of words of one byte, which are not kept
  absl::Status status_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_WORD_SHARD_H_
