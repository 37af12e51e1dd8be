#include "corpus/bpe/merge_engine.h"

#include <algorithm>
#include <array>
#include <functional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/rpc/reason.h"
#include "corpus/bpe/byte_level.h"
#include "corpus/bpe/huge_pages.h"
#include "corpus/bpe/pair_table.h"
#include "corpus/bpe/place_lists.h"

namespace cairn::corpus {
namespace {

// Cells between words, and cells inside a token.
constexpr uint32_t kEdge = ~uint32_t{0};
constexpr uint32_t kInside = kEdge - 1;
// A weight that does not fit; BigWeight() knows it.
constexpr uint32_t kBigWeight = ~uint32_t{0};
constexpr size_t kMaxCells = (size_t{1} << 32) - 64;
constexpr uint32_t kProgressEvery = 64;
constexpr size_t kAhead = 12;  // places to prefetch
constexpr uint64_t kTrackStep = 8;
constexpr int kMostMadeAgain = 16;

// A pair that could merge next, with the count that it had when it was put on the heap.
struct Candidate {
  uint64_t count;
  uint64_t left_prefix;  // the first bytes of the left token, big-endian: settles most ties without a look at the bytes
  uint32_t left;
  uint32_t right;
  uint32_t list;
};

absl::Status TooManyPlaces() {
  return MakeError(Reason::kMemoryLimit, "the pairs stand at more than 4 Gi places; train on a sample");
}

uint64_t Prefix(std::string_view bytes) {
  uint64_t prefix = 0;
  for (size_t i = 0; i < 8; ++i) prefix = prefix << 8 | (i < bytes.size() ? static_cast<uint8_t>(bytes[i]) : 0u);
  return prefix;
}

}  // namespace

class MergeEngine::Impl {
 public:
  explicit Impl(MergeOptions options) : options_(std::move(options)) {
    cells_.push_back(kEdge);
    for (uint32_t id = 0; id < 256; ++id) {
      const uint8_t byte = options_.tie_break == TieBreak::kBytes ? static_cast<uint8_t>(id) : ByteLevelOrder()[id];
      id_of_byte_[byte] = id;
      AddToken(std::string(1, static_cast<char>(byte)));
    }
  }

  void Reserve(uint64_t words, uint64_t bytes) {
    cells_.reserve(std::min<uint64_t>(words + bytes + 1, kMaxCells));
    counts_.reserve(words);
  }

  absl::Status AddWord(std::string_view word, uint64_t count) {
    if (word.size() < 2) return absl::OkStatus();  // nothing to merge
    if (word.size() + 1 > kMaxCells - cells_.size()) {
      return MakeError(Reason::kMemoryLimit, "the distinct words have more than 4 Gi bytes; train on a sample");
    }
    const size_t start = cells_.size();
    cells_.resize(start + word.size() + 1);
    for (size_t i = 0; i < word.size(); ++i) cells_[start + i] = id_of_byte_[static_cast<uint8_t>(word[i])];
    cells_.back() = kEdge;
    counts_.push_back(count);
    return absl::OkStatus();
  }

  uint64_t EstimatedBytes() const { return cells_.capacity() * 48 + counts_.capacity() * 8; }

  absl::StatusOr<MergeResult> Run();

 private:
  // What the merge at hand does to the pairs with one neighbour.
  struct Change {
    int64_t weight = 0;
    uint32_t places = 0;
    uint32_t list = 0;
    Place* next = nullptr;  // where its next place goes
  };
  struct Event {
    uint32_t neighbour;
    Place place;
  };

  struct Side {
    std::vector<Event> events;
    std::vector<uint32_t> touched;
    std::vector<Change> changes;  // by token

    void Record(uint32_t neighbour, uint32_t position, uint32_t weight32, uint64_t weight) {
      Change& change = changes[neighbour];
      if (change.places++ == 0) touched.push_back(neighbour);
      change.weight += static_cast<int64_t>(weight);
      events.push_back({neighbour, {position, weight32}});
    }

    void Clear() {
      for (const uint32_t n : touched) changes[n] = Change{};
      touched.clear();
      events.clear();
    }
  };

  uint32_t AddToken(std::string bytes);
  uint64_t BigWeight(uint32_t position) const;
  template <typename Visit>
  void ForEachPair(Visit&& visit) const;
  absl::Status FindPairs();
  template <typename Wanted>
  absl::Status Track(Wanted&& wanted);
  bool Before(const Candidate& a, const Candidate& b) const;
  void Push(uint32_t left, uint32_t right, uint32_t list, int64_t count);
  void PushCandidate(const Candidate& candidate);
  absl::StatusOr<bool> Pop(Candidate& best);
  std::span<const Place> PlacesOf(const Candidate& candidate);
  std::span<const Place> AllPlaces(uint64_t pair);
  std::span<const Place> WholeWords(uint32_t list, uint32_t left, uint32_t right);
  absl::Status Apply(uint32_t left, uint32_t right, uint32_t result, std::span<const Place> places);
  absl::Status NewPairs(Side& side, bool is_left, uint32_t result, int64_t more_of_result);
  void Forget(uint64_t pair);
  absl::Status MergeFirst();
  absl::Status DoMerge(uint32_t left, uint32_t right, std::span<const Place> places);

  const MergeOptions options_;
  uint32_t id_of_byte_[256];

  // All words, one cell per byte, kEdge before, between and behind them. The first and last cell of a token hold its
  // id, those between them kInside.
  HugeVector<uint32_t> cells_;
  std::vector<uint64_t> counts_;                            // by word
  std::vector<std::pair<uint32_t, uint64_t>> big_weights_;  // (first cell, count) of words that count 2^32 - 1 or more

  std::vector<std::string> tokens_;
  std::vector<uint32_t> length_;
  std::vector<uint64_t> prefix_;
  absl::flat_hash_map<std::string, uint32_t> id_of_;
  std::vector<Merge> merges_;

  PairTable pairs_;
  PlaceLists lists_;
  // Pairs that count less than this when they come into being are not in `pairs_` and have no list: most never merge.
  // When all others are done, Track() finds them in the words. A guess that is too low costs memory, one that is too
  // high another pass over the words.
  uint64_t tracked_ = 1;
  int made_again_ = 0;  // tokens that came into being by a second merge
  // A heap of the candidates with at least `floor_`; the many that are rarer wait in `rare_` until they are wanted.
  std::vector<Candidate> heap_;
  std::vector<Candidate> rare_;
  uint64_t floor_ = 0;

  Side left_, right_;
  std::vector<Place> gathered_;
};

uint32_t MergeEngine::Impl::AddToken(std::string bytes) {
  const auto id = static_cast<uint32_t>(tokens_.size());
  length_.push_back(static_cast<uint32_t>(bytes.size()));
  prefix_.push_back(Prefix(bytes));
  id_of_.emplace(bytes, id);
  tokens_.push_back(std::move(bytes));
  left_.changes.emplace_back();
  right_.changes.emplace_back();
  return id;
}

uint64_t MergeEngine::Impl::BigWeight(uint32_t position) const {
  const auto after = std::upper_bound(big_weights_.begin(), big_weights_.end(), position,
                                      [](uint32_t value, const auto& word) { return value < word.first; });
  return std::prev(after)->second;
}

// Calls visit(left, right, position, count of the word) for every place of every pair.
template <typename Visit>
void MergeEngine::Impl::ForEachPair(Visit&& visit) const {
  size_t word = 0;
  for (size_t i = 1; i + 1 < cells_.size();) {
    if (cells_[i] == kEdge) {
      ++word;
      ++i;
      continue;
    }
    const size_t next = i + length_[cells_[i]];
    if (cells_[next] != kEdge) visit(cells_[i], cells_[next], static_cast<uint32_t>(i), counts_[word]);
    i = next;
  }
}

// Takes the pairs (left, right, count) that are wanted into the table, with the places of each in ascending order and a
// candidate.
template <typename Wanted>
absl::Status MergeEngine::Impl::Track(Wanted&& wanted) {
  struct Found {
    uint64_t count = 0;
    uint32_t places = 0;
    uint32_t list = 0;
    Place* next = nullptr;
  };
  absl::flat_hash_map<uint64_t, Found> found;
  ForEachPair([&](uint32_t left, uint32_t right, uint32_t, uint64_t count) {
    const uint64_t pair = PairTable::Pair(left, right);
    if (!wanted(left, right, ~uint64_t{0}) || pairs_.Find(pair) != nullptr) return;
    Found& one = found[pair];
    one.count += count;
    ++one.places;
  });
  absl::erase_if(found, [&](const auto& one) {
    return !wanted(static_cast<uint32_t>(one.first >> 32), static_cast<uint32_t>(one.first), one.second.count);
  });
  if (found.empty()) return absl::OkStatus();
  for (auto& [pair, one] : found) {
    one.list = lists_.Add(one.places, PlaceLists::kNone);
    if (one.list == PlaceLists::kNone) return TooManyPlaces();
    one.next = lists_.Get(one.list).data();
  }
  ForEachPair([&](uint32_t left, uint32_t right, uint32_t position, uint64_t count) {
    const auto it = found.find(PairTable::Pair(left, right));
    if (it == found.end()) return;
    *it->second.next++ = {position, static_cast<uint32_t>(std::min<uint64_t>(count, kBigWeight))};
  });
  for (const auto& [pair, one] : found) {
    PairTable::Slot& slot = pairs_.At(pair);
    slot.count = static_cast<int64_t>(one.count);
    slot.list = one.list;
    slot.lists = 1;
    Push(static_cast<uint32_t>(pair >> 32), static_cast<uint32_t>(pair), one.list, slot.count);
  }
  return absl::OkStatus();
}

// The pairs of bytes, with the places of each in ascending order.
absl::Status MergeEngine::Impl::FindPairs() {
  uint32_t start = 1;
  for (const uint64_t count : counts_) {
    if (count >= kBigWeight) big_weights_.emplace_back(start, count);
    while (cells_[start] != kEdge) ++start;
    ++start;
  }
  // Of `wanted` merges the last is more frequent, on text, than the word of that rank: most words need one or more.
  if (options_.first.empty() && options_.wanted < counts_.size()) {
    std::vector<uint64_t> counts = counts_;
    const auto rank = counts.begin() + static_cast<ptrdiff_t>(options_.wanted);
    std::nth_element(counts.begin(), rank, counts.end(), std::greater<>());
    tracked_ = std::max<uint64_t>({*rank, options_.min_frequency, 1});
  }
  constexpr size_t kPairs = 256 * 256;
  std::vector<int64_t> weight(kPairs);
  std::vector<uint32_t> places(kPairs);
  ForEachPair([&](uint32_t left, uint32_t right, uint32_t, uint64_t count) {
    const uint32_t pair = left << 8 | right;
    weight[pair] += static_cast<int64_t>(count);
    ++places[pair];
  });
  std::vector<Place*> next(kPairs);
  floor_ = static_cast<uint64_t>(std::max<int64_t>(*std::max_element(weight.begin(), weight.end()) / 16, 1));
  floor_ = std::max(floor_, tracked_);
  for (uint32_t pair = 0; pair < kPairs; ++pair) {
    if (places[pair] == 0 || weight[pair] < static_cast<int64_t>(tracked_)) continue;
    PairTable::Slot& slot = pairs_.At(PairTable::Pair(pair >> 8, pair & 0xFF));
    slot.count = weight[pair];
    slot.list = lists_.Add(places[pair], PlaceLists::kNone);
    if (slot.list == PlaceLists::kNone) return TooManyPlaces();
    slot.lists = 1;
    next[pair] = lists_.Get(slot.list).data();
    Push(pair >> 8, pair & 0xFF, slot.list, weight[pair]);
  }
  ForEachPair([&](uint32_t left, uint32_t right, uint32_t position, uint64_t count) {
    Place*& place = next[left << 8 | right];
    if (place != nullptr) *place++ = {position, static_cast<uint32_t>(std::min<uint64_t>(count, kBigWeight))};
  });
  return absl::OkStatus();
}

// Whether `b` merges before `a`: the order of std::push_heap.
inline bool MergeEngine::Impl::Before(const Candidate& a, const Candidate& b) const {
  if (a.count != b.count) return a.count < b.count;
  if (options_.tie_break == TieBreak::kHuggingFace) {
    return PairTable::Pair(a.left, a.right) > PairTable::Pair(b.left, b.right);
  }
  if (a.left_prefix != b.left_prefix) return a.left_prefix < b.left_prefix;
  if (a.left != b.left) return tokens_[a.left] < tokens_[b.left];
  if (a.right == b.right) return false;
  if (prefix_[a.right] != prefix_[b.right]) return prefix_[a.right] < prefix_[b.right];
  return tokens_[a.right] < tokens_[b.right];
}

void MergeEngine::Impl::PushCandidate(const Candidate& candidate) {
  if (candidate.count < floor_) {
    rare_.push_back(candidate);
    return;
  }
  heap_.push_back(candidate);
  std::push_heap(heap_.begin(), heap_.end(), [this](const auto& a, const auto& b) { return Before(a, b); });
}

void MergeEngine::Impl::Push(uint32_t left, uint32_t right, uint32_t list, int64_t count) {
  if (count <= 0) return;
  PushCandidate({static_cast<uint64_t>(count), prefix_[left], left, right, list});
}

// The candidate that merges next; false if none is left.
absl::StatusOr<bool> MergeEngine::Impl::Pop(Candidate& best) {
  const auto order = [this](const auto& a, const auto& b) { return Before(a, b); };
  const uint64_t least = std::max<uint64_t>(options_.min_frequency, 1);
  while (true) {
    while (heap_.empty()) {
      if (floor_ <= tracked_) {
        if (tracked_ <= least) return false;
        tracked_ = std::max(tracked_ / kTrackStep, least);
        CAIRN_RETURN_IF_ERROR(Track([this](uint32_t, uint32_t, uint64_t count) { return count >= tracked_; }));
      }
      floor_ = std::max(floor_ / 4, tracked_);
      const auto wanted =
          std::partition(rare_.begin(), rare_.end(), [this](const Candidate& c) { return c.count < floor_; });
      heap_.assign(wanted, rare_.end());
      rare_.erase(wanted, rare_.end());
      std::make_heap(heap_.begin(), heap_.end(), order);
    }
    std::pop_heap(heap_.begin(), heap_.end(), order);
    best = heap_.back();
    heap_.pop_back();
    const PairTable::Slot* slot = pairs_.Find(PairTable::Pair(best.left, best.right));
    const int64_t count = slot == nullptr ? 0 : slot->count;
    if (count == static_cast<int64_t>(best.count)) return best.count >= least;
    if (count <= 0) continue;
    best.count = static_cast<uint64_t>(count);
    PushCandidate(best);
  }
}

// All places of a pair: one list as it is, several put together.
std::span<const Place> MergeEngine::Impl::AllPlaces(uint64_t pair) {
  const PairTable::Slot* slot = pairs_.Find(pair);
  if (slot == nullptr || slot->list == PlaceLists::kNone) return {};
  if (lists_.Previous(slot->list) == PlaceLists::kNone) return lists_.Get(slot->list);
  gathered_.clear();
  for (uint32_t list = slot->list; list != PlaceLists::kNone; list = lists_.Previous(list)) {
    const auto places = lists_.Get(list);
    gathered_.insert(gathered_.end(), places.begin(), places.end());
  }
  std::sort(gathered_.begin(), gathered_.end(), [](Place a, Place b) { return a.position < b.position; });
  return gathered_;
}

// Every place of the pair in the words that one list touches: Hugging Face's trainer remembers words, not places, and
// the difference shows when a pair comes into being twice.
std::span<const Place> MergeEngine::Impl::WholeWords(uint32_t list, uint32_t left, uint32_t right) {
  std::vector<Place> words;
  for (const Place place : lists_.Get(list)) {
    uint32_t start = place.position;
    while (cells_[start - 1] != kEdge) --start;
    if (words.empty() || words.back().position != start) words.push_back({start, place.weight});
  }
  gathered_.clear();
  for (const Place word : words) {
    for (uint32_t p = word.position; cells_[p] != kEdge; p += length_[cells_[p]]) {
      if (cells_[p] == left && cells_[p + length_[left]] == right) gathered_.push_back({p, word.weight});
    }
  }
  return gathered_;
}

std::span<const Place> MergeEngine::Impl::PlacesOf(const Candidate& candidate) {
  const uint64_t pair = PairTable::Pair(candidate.left, candidate.right);
  if (options_.tie_break == TieBreak::kBytes) return AllPlaces(pair);
  if (pairs_.Find(pair)->lists == 1) return lists_.Get(candidate.list);
  return WholeWords(candidate.list, candidate.left, candidate.right);
}

// Puts `result` for left, right at all places where they still stand, and counts what that changes.
absl::Status MergeEngine::Impl::Apply(uint32_t left, uint32_t right, uint32_t result, std::span<const Place> places) {
  const uint32_t left_length = length_[left];
  const uint32_t length = left_length + length_[right];
  uint32_t* const cells = cells_.data();
  int64_t before_result = 0;  // of pairs (right, result) that became (result, result)
  for (size_t i = 0; i < places.size(); ++i) {
    if (i + kAhead < places.size()) __builtin_prefetch(cells + places[i + kAhead].position, 1);
    const auto [p, weight32] = places[i];
    if (cells[p] != left || cells[p + left_length] != right) continue;
    const uint64_t weight = weight32 == kBigWeight ? BigWeight(p) : weight32;
    const uint32_t x = cells[p - 1];
    const uint32_t y = cells[p + length];
    cells[p + left_length - 1] = kInside;
    cells[p + left_length] = kInside;
    cells[p] = result;
    cells[p + length - 1] = result;
    if (x != kEdge) left_.Record(x, p - length_[x], weight32, weight);
    if (y == result) {
      left_.Record(result, p, weight32, 0);
      before_result += static_cast<int64_t>(weight);
    } else if (y != kEdge) {
      right_.Record(y, p, weight32, weight);
    }
  }
  // New pairs first: of two places side by side the second takes away again a pair that the first has made.
  CAIRN_RETURN_IF_ERROR(NewPairs(left_, true, result, before_result));
  CAIRN_RETURN_IF_ERROR(NewPairs(right_, false, result, 0));
  const auto less = [&](uint64_t pair, int64_t weight) {
    if (PairTable::Slot* slot = pairs_.Find(pair)) slot->count -= weight;
  };
  if (before_result != 0) less(PairTable::Pair(right, result), before_result);
  for (size_t i = 0; i < left_.touched.size(); ++i) {
    if (i + kAhead < left_.touched.size()) pairs_.Prefetch(PairTable::Pair(left_.touched[i + kAhead], left));
    less(PairTable::Pair(left_.touched[i], left), left_.changes[left_.touched[i]].weight);
  }
  for (size_t i = 0; i < right_.touched.size(); ++i) {
    if (i + kAhead < right_.touched.size()) pairs_.Prefetch(PairTable::Pair(right, right_.touched[i + kAhead]));
    less(PairTable::Pair(right, right_.touched[i]), right_.changes[right_.touched[i]].weight);
  }
  left_.Clear();
  right_.Clear();
  return absl::OkStatus();
}

// Counts the pairs that came into being, and makes their lists and candidates.
absl::Status MergeEngine::Impl::NewPairs(Side& side, bool is_left, uint32_t result, int64_t more_of_result) {
  const auto pair_of = [&](uint32_t n) { return is_left ? PairTable::Pair(n, result) : PairTable::Pair(result, n); };
  for (size_t i = 0; i < side.touched.size(); ++i) {
    if (i + kAhead < side.touched.size()) pairs_.Prefetch(pair_of(side.touched[i + kAhead]));
    const uint32_t n = side.touched[i];
    Change& change = side.changes[n];
    const int64_t weight = change.weight + (n == result ? more_of_result : 0);
    const uint64_t pair = pair_of(n);
    PairTable::Slot* const slot =
        tracked_ <= 1 || weight >= static_cast<int64_t>(tracked_) ? &pairs_.At(pair) : pairs_.Find(pair);
    change.list = PlaceLists::kNone;
    if (slot == nullptr) continue;
    change.list = lists_.Add(change.places, slot->list);
    if (change.list == PlaceLists::kNone) return TooManyPlaces();
    slot->count += weight;
    slot->list = change.list;
    ++slot->lists;
    change.next = lists_.Get(change.list).data();
    Push(static_cast<uint32_t>(pair >> 32), static_cast<uint32_t>(pair), change.list, slot->count);
  }
  for (const Event& event : side.events) {
    Change& change = side.changes[event.neighbour];
    if (change.list != PlaceLists::kNone) *change.next++ = event.place;
  }
  return absl::OkStatus();
}

// Gives up the lists of a pair whose places are all merged.
void MergeEngine::Impl::Forget(uint64_t pair) {
  PairTable::Slot* const slot = pairs_.Find(pair);
  if (slot == nullptr) return;
  for (uint32_t list = slot->list; list != PlaceLists::kNone;) {
    const uint32_t previous = lists_.Previous(list);
    lists_.Free(list);
    list = previous;
  }
  slot->count = 0;
  slot->list = PlaceLists::kNone;
  slot->lists = 0;
}

absl::Status MergeEngine::Impl::DoMerge(uint32_t left, uint32_t right, std::span<const Place> places) {
  std::string bytes = tokens_[left] + tokens_[right];
  const auto known = id_of_.find(bytes);
  const bool again = known != id_of_.end();
  const uint32_t result = again ? known->second : AddToken(std::move(bytes));
  // Pairs of a token that is there already come into being a second time: from now on all of them count, and if it
  // happens often all pairs of all tokens do.
  if (again && tracked_ > 1) {
    if (++made_again_ > kMostMadeAgain) tracked_ = 1;
    CAIRN_RETURN_IF_ERROR(
        Track([&](uint32_t a, uint32_t b, uint64_t) { return tracked_ == 1 || a == result || b == result; }));
  }
  merges_.push_back({left, right, result});
  return Apply(left, right, result, places);
}

absl::Status MergeEngine::Impl::MergeFirst() {
  for (const auto& [left_bytes, right_bytes] : options_.first) {
    const auto left = id_of_.find(left_bytes);
    const auto right = id_of_.find(right_bytes);
    if (left == id_of_.end() || right == id_of_.end()) {
      return MakeError(
          Reason::kBadTokenizer,
          absl::StrCat("merge ", merges_.size() + 1, " of the vocabulary to extend, '", ToByteLevel(left_bytes), " ",
                       ToByteLevel(right_bytes), "', uses a token that no merge before it makes"));
    }
    const uint64_t pair = PairTable::Pair(left->second, right->second);
    CAIRN_RETURN_IF_ERROR(DoMerge(left->second, right->second, AllPlaces(pair)));
    Forget(pair);
  }
  return absl::OkStatus();
}

absl::StatusOr<MergeResult> MergeEngine::Impl::Run() {
  const bool count_merges = options_.tie_break == TieBreak::kBytes;
  CAIRN_RETURN_IF_ERROR(FindPairs());
  CAIRN_RETURN_IF_ERROR(MergeFirst());
  const auto made = [&] { return count_merges ? merges_.size() : tokens_.size() - 256; };
  Candidate best;
  while (made() < options_.wanted) {
    CAIRN_ASSIGN_OR_RETURN(const bool found, Pop(best));
    if (!found) break;
    CAIRN_RETURN_IF_ERROR(DoMerge(best.left, best.right, PlacesOf(best)));
    if (count_merges) {
      Forget(PairTable::Pair(best.left, best.right));
    } else {
      lists_.Free(best.list);  // this candidate was the only one that knew it
    }
    if (options_.progress && merges_.size() % kProgressEvery == 0 &&
        !options_.progress(static_cast<uint32_t>(merges_.size()))) {
      return MakeError(Reason::kInterrupted, "interrupted while pairs were merged");
    }
  }
  if (!count_merges) {
    // A pair that merged twice has its later place.
    absl::flat_hash_set<uint64_t> seen;
    std::vector<Merge> kept;
    for (auto it = merges_.rbegin(); it != merges_.rend(); ++it) {
      if (seen.insert(PairTable::Pair(it->left, it->right)).second) kept.push_back(*it);
    }
    merges_.assign(kept.rbegin(), kept.rend());
  }
  return MergeResult{std::move(tokens_), std::move(merges_)};
}

MergeEngine::MergeEngine(MergeOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
MergeEngine::~MergeEngine() = default;

absl::Status MergeEngine::AddWord(std::string_view word, uint64_t count) { return impl_->AddWord(word, count); }
void MergeEngine::Reserve(uint64_t words, uint64_t bytes) { impl_->Reserve(words, bytes); }
uint64_t MergeEngine::EstimatedBytes() const { return impl_->EstimatedBytes(); }
absl::StatusOr<MergeResult> MergeEngine::Run() { return impl_->Run(); }

}  // namespace cairn::corpus
