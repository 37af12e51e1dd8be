#include "corpus/bpe/word_shard.h"

#include <algorithm>
#include <functional>

#include "common/status/reason.h"
#include "corpus/bpe/word_weights.h"

namespace cairn::corpus {
namespace {

constexpr size_t kMaxCells = (size_t{1} << 32) - 64;
constexpr size_t kAhead = 12;                // places are fetched so far ahead
constexpr uint64_t kCountedApart = 1 << 16;  // counts below this are sorted by counting

// A `Cell` holds the id of a token, or one of two values that are no ids.
template <typename Cell>
class WordShardOf final : public WordShard {
 public:
  explicit WordShardOf(const std::vector<uint32_t>& lengths) : WordShard(lengths) {}

  void Arrange(const std::array<uint32_t, 256>& id_of_byte, const MergeSchedule& first) override {
    const std::vector<uint32_t> words = Ranked();
    cells_.resize(bytes_.size() + words.size() + 1);
    size_t at = 0;
    cells_[at++] = kEdge;
    for (const uint32_t word : words) {
      const uint64_t count = word_counts_[word];
      if (counts_.empty() || counts_.back().first != count) {
        counts_.emplace_back(count, 0);
        weights_.Add(static_cast<uint32_t>(at), count);
      }
      ++counts_.back().second;
      const size_t begin = at;
      for (const char c : WordBytes(word)) cells_[at++] = static_cast<Cell>(id_of_byte[static_cast<uint8_t>(c)]);
      cells_[at++] = kEdge;
      if (!first.empty()) MergeWord(begin, first);
    }
    weights_.Finish();
    bytes_ = {};
    ends_ = {};
    word_counts_ = {};
  }

  uint64_t Tokens() const override {
    uint64_t tokens = single_bytes_;
    WordWeights::Cursor weights(weights_);
    for (size_t i = 1; i + 1 < cells_.size();) {
      if (cells_[i] == kEdge) {
        ++i;
        continue;
      }
      tokens += weights.At(static_cast<uint32_t>(i));
      i += lengths_[cells_[i]];
    }
    return tokens;
  }

  void TallyBytePairs(BytePairs& tallies) const override {
    ForEachBytePair([&](uint32_t pair, uint32_t, uint64_t weight) {
      tallies[pair].weight += weight;
      ++tallies[pair].places;
    });
  }

  void ListBytePairs(const BytePairs& tallies, const ByteSets& sets) override {
    std::vector<uint32_t*> next(tallies.size());
    for (size_t pair = 0; pair < tallies.size(); ++pair) {
      if (sets[pair] == kNoSet || tallies[pair].places == 0) continue;
      next[pair] = NewList(sets[pair], tallies[pair].places);
      if (next[pair] == nullptr) return;
    }
    ForEachBytePair([&](uint32_t pair, uint32_t position, uint64_t) {
      if (next[pair] != nullptr) *next[pair]++ = position;
    });
  }

  Pairs FindPairs(uint32_t token, const PairTable& known) const override {
    Pairs found;
    ForEachPair([&](uint32_t left, uint32_t right, uint32_t, uint64_t weight) {
      if (token != kAnyToken && left != token && right != token) return;
      const uint64_t pair = PairTable::Pair(left, right);
      if (known.Find(pair) != nullptr) return;
      Tally& tally = found[pair];
      tally.weight += weight;
      ++tally.places;
    });
    return found;
  }

  void ListPairs(const Pairs& found, const PairSets& sets) override {
    absl::flat_hash_map<uint64_t, uint32_t*> next;
    for (const auto& [pair, tally] : found) {
      const auto set = sets.find(pair);
      if (set == sets.end()) continue;
      uint32_t* const places = NewList(set->second, tally.places);
      if (places == nullptr) return;
      next.emplace(pair, places);
    }
    if (next.empty()) return;
    ForEachPair([&](uint32_t left, uint32_t right, uint32_t position, uint64_t) {
      const auto it = next.find(PairTable::Pair(left, right));
      if (it != next.end()) *it->second++ = position;
    });
  }

  void Merge(const Step& step) override {
    std::span<const uint32_t> places;
    if (step.sets.size() == 1 && !step.whole_words) {
      places = ListOf(step.sets[0]);
    } else {
      GatherPlaces(step);
      places = gathered_;
    }
    Apply(step, places);
    for (const uint32_t set : step.sets) FreeList(set);
  }

 private:
  // kEdge stands between words, kInside inside a token.
  static constexpr Cell kEdge = static_cast<Cell>(~Cell{0});
  static constexpr Cell kInside = kEdge - 1;

  // A place where a scheduled merge may be done.
  struct Due {
    uint32_t time;
    uint32_t position;
    bool operator>(const Due& other) const {
      return time != other.time ? time > other.time : position > other.position;
    }
  };

  // Does the merges of a schedule in the word that begins at cell `begin`, whose tokens are bytes.
  void MergeWord(size_t begin, const MergeSchedule& schedule) {
    Cell* const cells = cells_.data();
    due_.clear();
    const auto expect = [&](size_t position, Cell left, Cell right, uint32_t from) {
      const uint32_t time = schedule.NextOf(left, right, from);
      if (time != MergeSchedule::kNever) due_.push_back({time, static_cast<uint32_t>(position)});
      return time != MergeSchedule::kNever;
    };
    for (size_t p = begin; cells[p + 1] != kEdge; ++p) expect(p, cells[p], cells[p + 1], 0);
    std::make_heap(due_.begin(), due_.end(), std::greater<>());
    while (!due_.empty()) {
      const auto [time, p] = due_.front();
      std::pop_heap(due_.begin(), due_.end(), std::greater<>());
      due_.pop_back();
      const MergeSchedule::Step& step = schedule[time];
      const uint32_t left_length = lengths_[step.left];
      if (cells[p] != static_cast<Cell>(step.left) || cells[p + left_length] != static_cast<Cell>(step.right)) continue;
      const uint32_t length = left_length + lengths_[step.right];
      const auto result = static_cast<Cell>(step.result);
      cells[p + left_length - 1] = kInside;
      cells[p + left_length] = kInside;
      cells[p] = result;
      cells[p + length - 1] = result;
      const Cell x = cells[p - 1];
      const Cell y = cells[p + length];
      if (x != kEdge && expect(p - lengths_[x], x, result, time + 1)) {
        std::push_heap(due_.begin(), due_.end(), std::greater<>());
      }
      if (y != kEdge && expect(p, result, y, time + 1)) std::push_heap(due_.begin(), due_.end(), std::greater<>());
    }
  }

  // Calls visit(left << 8 | right, position, weight) for every place; all tokens must be bytes.
  template <typename Visit>
  void ForEachBytePair(Visit&& visit) const {
    WordWeights::Cursor weights(weights_);
    for (size_t i = 1; i + 1 < cells_.size(); ++i) {
      const uint32_t left = cells_[i], right = cells_[i + 1];
      if (left == kEdge || right == kEdge) continue;
      visit(left << 8 | right, static_cast<uint32_t>(i), weights.At(static_cast<uint32_t>(i)));
    }
  }

  // Calls visit(left, right, position, weight) for every place of every pair.
  template <typename Visit>
  void ForEachPair(Visit&& visit) const {
    WordWeights::Cursor weights(weights_);
    for (size_t i = 1; i + 1 < cells_.size();) {
      if (cells_[i] == kEdge) {
        ++i;
        continue;
      }
      const size_t next = i + lengths_[cells_[i]];
      const auto position = static_cast<uint32_t>(i);
      if (cells_[next] != kEdge) visit(cells_[i], cells_[next], position, weights.At(position));
      i = next;
    }
  }

  void GatherPlaces(const Step& step) {
    gathered_.clear();
    for (const uint32_t set : step.sets) {
      const auto places = ListOf(set);
      gathered_.insert(gathered_.end(), places.begin(), places.end());
    }
    std::sort(gathered_.begin(), gathered_.end());
    if (!step.whole_words) return;
    std::vector<uint32_t> starts;
    for (uint32_t place : gathered_) {
      while (cells_[place - 1] != kEdge) --place;
      if (starts.empty() || starts.back() != place) starts.push_back(place);
    }
    gathered_.clear();
    for (const uint32_t start : starts) {
      for (uint32_t p = start; cells_[p] != kEdge; p += lengths_[cells_[p]]) {
        if (cells_[p] == step.left && cells_[p + lengths_[step.left]] == step.right) gathered_.push_back(p);
      }
    }
  }

  void Apply(const Step& step, std::span<const uint32_t> places) {
    const uint32_t left_length = lengths_[step.left];
    const uint32_t length = left_length + lengths_[step.right];
    const auto left = static_cast<Cell>(step.left);
    const auto right = static_cast<Cell>(step.right);
    const auto result = static_cast<Cell>(step.result);
    Cell* const cells = cells_.data();
    WordWeights::Cursor weights(weights_);
    left_.Begin(lengths_.size(), places.size());
    right_.Begin(lengths_.size(), places.size());
    before_result_ = 0;
    uint64_t merged = 0;
    for (size_t i = 0; i < places.size(); ++i) {
      if (i + kAhead < places.size()) __builtin_prefetch(cells + places[i + kAhead], 1);
      const uint32_t p = places[i];
      if (cells[p] != left || cells[p + left_length] != right) continue;
      const uint64_t weight = weights.At(p);
      merged += weight;
      const Cell x = cells[p - 1];
      const Cell y = cells[p + length];
      // The first and the last cell of a token hold its id.
      cells[p + left_length - 1] = kInside;
      cells[p + left_length] = kInside;
      cells[p] = result;
      cells[p + length - 1] = result;
      if (x != kEdge) left_.Record(x, p - lengths_[x], weight);
      if (y == result) {
        left_.Record(result, p, 0);
        before_result_ += weight;
      } else if (y != kEdge) {
        right_.Record(y, p, weight);
      }
    }
    merged_ = merged;
  }

  // Holds all words with one cell per byte, and kEdge before, between and behind them.
  HugeVector<Cell> cells_;
  WordWeights weights_;
  std::vector<uint32_t> gathered_;
  std::vector<Due> due_;  // a heap, the earliest first
};

}  // namespace

std::unique_ptr<WordShard> WordShard::Make(uint64_t tokens, const std::vector<uint32_t>& lengths) {
  if (tokens <= 0xFFFE) return std::make_unique<WordShardOf<uint16_t>>(lengths);
  return std::make_unique<WordShardOf<uint32_t>>(lengths);
}

void WordShard::Reserve(uint64_t words, uint64_t bytes) {
  bytes_.reserve(std::min<uint64_t>(bytes, kMaxCells));
  ends_.reserve(words);
  word_counts_.reserve(words);
}

absl::Status WordShard::AddWord(std::string_view word, uint64_t count) {
  text_bytes_ += word.size() * count;
  if (word.size() < 2) {  // there is nothing to merge
    single_bytes_ += count;
    return absl::OkStatus();
  }
  if (bytes_.size() + ends_.size() + word.size() + 1 > kMaxCells) {
    return MakeError(Reason::kMemoryLimit, "the distinct words have more than 4 Gi bytes; train on a sample");
  }
  bytes_.insert(bytes_.end(), word.begin(), word.end());
  ends_.push_back(static_cast<uint32_t>(bytes_.size()));
  word_counts_.push_back(count);
  return absl::OkStatus();
}

std::string_view WordShard::WordBytes(uint32_t word) const {
  const size_t begin = word == 0 ? 0 : ends_[word - 1];
  return {bytes_.data() + begin, ends_[word] - begin};
}

std::vector<uint32_t> WordShard::Ranked() const {
  // This is a counting sort with one place for all large counts; then these few are sorted by comparison.
  const auto key = [&](size_t word) { return kCountedApart - std::min(word_counts_[word], kCountedApart); };
  std::vector<uint32_t> begin(kCountedApart + 2);
  for (size_t word = 0; word < word_counts_.size(); ++word) ++begin[key(word) + 1];
  const uint32_t large = begin[1];
  for (size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
  std::vector<uint32_t> ranked(word_counts_.size());
  for (size_t word = 0; word < word_counts_.size(); ++word) ranked[begin[key(word)]++] = static_cast<uint32_t>(word);
  std::stable_sort(ranked.begin(), ranked.begin() + large,
                   [&](uint32_t a, uint32_t b) { return word_counts_[a] > word_counts_[b]; });
  return ranked;
}

uint32_t* WordShard::NewList(uint32_t set, uint32_t places) {
  const uint32_t list = lists_.Add(places);
  if (list == PlaceLists::kNone) {
    status_ = MakeError(Reason::kMemoryLimit, "the pairs stand at more than 4 Gi places; train on a sample");
    return nullptr;
  }
  if (set >= list_of_set_.size()) list_of_set_.resize(set + 1, PlaceLists::kNone);
  list_of_set_[set] = list;
  return lists_.Get(list).data();
}

std::span<const uint32_t> WordShard::ListOf(uint32_t set) const {
  if (set >= list_of_set_.size() || list_of_set_[set] == PlaceLists::kNone) return {};
  return lists_.Get(list_of_set_[set]);
}

void WordShard::FreeList(uint32_t set) {
  if (set >= list_of_set_.size() || list_of_set_[set] == PlaceLists::kNone) return;
  lists_.Free(list_of_set_[set]);
  list_of_set_[set] = PlaceLists::kNone;
}

uint64_t WordShard::PlacesOf(std::span<const uint32_t> sets) const {
  uint64_t places = 0;
  for (const uint32_t set : sets) places += ListOf(set).size();
  return places;
}

void WordShard::Side::Begin(size_t tokens, size_t most_events) {
  for (const Touched& one : touched) index[one.neighbour] = kUntouched;
  touched.clear();
  index.resize(tokens, kUntouched);
  if (events.size() < most_events) events.resize(most_events);
  event_count = 0;
}

void WordShard::MakeListsOf(Side& side, const std::vector<uint32_t>& sets) {
  side.next.clear();
  for (const Touched& one : side.touched) {
    const uint32_t set = sets[one.neighbour];
    side.next.push_back(set == kNoSet ? nullptr : NewList(set, one.places));
  }
  if (!status_.ok()) return;
  for (size_t i = 0; i < side.event_count; ++i) {
    uint32_t*& next = side.next[side.events[i].touched];
    if (next != nullptr) *next++ = side.events[i].position;
  }
}

void WordShard::MakeLists(const std::vector<uint32_t>& left_sets, const std::vector<uint32_t>& right_sets) {
  MakeListsOf(left_, left_sets);
  MakeListsOf(right_, right_sets);
}

}  // namespace cairn::corpus
