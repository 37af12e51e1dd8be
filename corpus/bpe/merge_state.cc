#include "corpus/bpe/merge_state.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/byte_level.h"

namespace cairn::corpus {
namespace {

constexpr size_t kAhead = 12;  // pairs are fetched so far ahead
constexpr uint64_t kTrackStep = 8;
constexpr int kMostMadeAgain = 16;
// Several threads are quicker than one if one merge has this many places.
constexpr uint64_t kTeamPlaces = 1500;

uint64_t Prefix(std::string_view bytes) {
  uint64_t prefix = 0;
  for (size_t i = 0; i < 8; ++i) prefix = prefix << 8 | (i < bytes.size() ? static_cast<uint8_t>(bytes[i]) : 0u);
  return prefix;
}

}  // namespace

MergeState::MergeState(Options options) : options_(std::move(options)) {
  const uint64_t most_tokens = 256 + uint64_t{options_.most_merges};
  for (uint32_t i = 0; i < std::max<uint32_t>(options_.shards, 1); ++i) {
    shards_.push_back(WordShard::Make(most_tokens, length_));
  }
  for (uint32_t id = 0; id < 256; ++id) {
    const uint8_t byte = options_.bytes_by_text ? ByteLevelOrder()[id] : static_cast<uint8_t>(id);
    id_of_byte_[byte] = id;
    AddToken(std::string(1, static_cast<char>(byte)));
  }
}

uint64_t MergeState::word_bytes() const {
  uint64_t bytes = 0;
  for (const auto& shard : shards_) bytes += shard->word_bytes();
  return bytes;
}

uint64_t MergeState::EstimatedBytes() const {
  uint64_t bytes = 0;
  for (const auto& shard : shards_) bytes += shard->EstimatedBytes();
  return bytes;
}

uint64_t MergeState::TextBytes() const {
  uint64_t bytes = 0;
  for (const auto& shard : shards_) bytes += shard->text_bytes();
  return bytes;
}

uint64_t MergeState::Tokens() const {
  uint64_t tokens = 0;
  for (const auto& shard : shards_) tokens += shard->Tokens();
  return tokens;
}

uint64_t MergeState::merged() const {
  uint64_t merged = 0;
  for (const auto& shard : shards_) merged += shard->merged();
  return merged;
}

void MergeState::Side::Clear() {
  for (const uint32_t n : touched) {
    changes[n] = Change{};
    sets[n] = WordShard::kNoSet;
  }
  touched.clear();
}

void MergeState::Side::Add(std::span<const WordShard::Touched> part) {
  for (const auto& [neighbour, places, weight] : part) {
    Change& change = changes[neighbour];
    if (change.places == 0) touched.push_back(neighbour);
    change.places += places;
    change.weight += weight;
  }
}

uint32_t MergeState::AddToken(std::string bytes) {
  const auto id = static_cast<uint32_t>(tokens_.size());
  length_.push_back(static_cast<uint32_t>(bytes.size()));
  if (options_.ties == Ties::kGreatestText) {
    std::string key = bytes;
    for (char& c : key) c = static_cast<char>(id_of_byte_[static_cast<uint8_t>(c)]);
    prefix_.push_back(Prefix(key));
    keys_.push_back(std::move(key));
  } else {
    prefix_.push_back(Prefix(bytes));
  }
  id_of_.emplace(bytes, id);
  tokens_.push_back(std::move(bytes));
  for (Side* side : {&left_, &right_}) {
    side->changes.emplace_back();
    side->sets.push_back(WordShard::kNoSet);
  }
  return id;
}

// Calls work(shard, its number) for every shard, on several threads or on this one.
void MergeState::InShards(bool with_team, absl::FunctionRef<void(WordShard&, size_t)> work) {
  if (with_team && team_ != nullptr) {
    // A helper's lack of memory must not end the process.
    team_->Run([&](uint32_t i) {
      shards_[i]->Fail(WithMemory("to merge pairs", [&] {
        work(*shards_[i], i);
        return absl::OkStatus();
      }));
    });
    return;
  }
  for (size_t i = 0; i < shards_.size(); ++i) work(*shards_[i], i);
}

absl::Status MergeState::ShardStatus() const {
  for (const auto& shard : shards_) CAIRN_RETURN_IF_ERROR(shard->status());
  return absl::OkStatus();
}

uint32_t MergeState::NewSet(PairTable::Slot& slot) {
  const auto set = static_cast<uint32_t>(previous_set_.size());
  previous_set_.push_back(slot.set);
  slot.set = set;
  ++slot.sets;
  return set;
}

// Returns the count of the word at this rank when words are ordered by descending counts; 0 if there is none.
uint64_t MergeState::CountOfRank(uint64_t rank) const {
  std::vector<std::pair<uint64_t, uint64_t>> counts;
  for (const auto& shard : shards_) counts.insert(counts.end(), shard->counts().begin(), shard->counts().end());
  std::sort(counts.begin(), counts.end(), std::greater<>());
  for (const auto& [count, words] : counts) {
    if (rank < words) return count;
    rank -= words;
  }
  return 0;
}

absl::Status MergeState::Begin(const std::vector<std::pair<std::string, std::string>>& first) {
  CAIRN_ASSIGN_OR_RETURN(const MergeSchedule schedule, Schedule(first));
  InShards(true, [&](WordShard& shard, size_t) { shard.Arrange(id_of_byte_, schedule); });
  CAIRN_RETURN_IF_ERROR(ShardStatus());
  // In text, the last of all merges is more frequent than the word of that rank, because most words need at least one
  // merge.
  if (!options_.any_pair) {
    tracked_ = std::max<uint64_t>({CountOfRank(options_.most_merges), options_.min_frequency, 1});
  }
  if (schedule.empty()) return FindBytePairs();
  floor_ = ~uint64_t{0};  // all candidates wait until the most frequent one is known
  CAIRN_RETURN_IF_ERROR(Track(tracked_, WordShard::kAnyToken));
  floor_ = tracked_;
  for (const Candidate& candidate : rare_) floor_ = std::max(floor_, candidate.count);
  return absl::OkStatus();
}

// Makes the tokens of merges that are known already.
absl::StatusOr<MergeSchedule> MergeState::Schedule(const std::vector<std::pair<std::string, std::string>>& first) {
  MergeSchedule schedule;
  for (const auto& [left_bytes, right_bytes] : first) {
    const auto left = id_of_.find(left_bytes);
    const auto right = id_of_.find(right_bytes);
    if (left == id_of_.end() || right == id_of_.end()) {
      return MakeError(
          Reason::kBadTokenizer,
          absl::StrCat("merge ", merges_.size() + 1, " of the vocabulary to extend, '", ToByteLevel(left_bytes), " ",
                       ToByteLevel(right_bytes), "', uses a token that no merge before it makes"));
    }
    Merge merge = {left->second, right->second, 0};
    const auto known = id_of_.find(left_bytes + right_bytes);
    merge.result = known != id_of_.end() ? known->second : AddToken(left_bytes + right_bytes);
    schedule.Add(merge.left, merge.right, merge.result);
    merges_.push_back(merge);
  }
  return schedule;
}

// Counts and lists the pairs of bytes.
absl::Status MergeState::FindBytePairs() {
  std::vector<std::unique_ptr<WordShard::BytePairs>> parts(shards_.size());
  InShards(true, [&](WordShard& shard, size_t i) {
    parts[i] = std::make_unique<WordShard::BytePairs>();
    shard.TallyBytePairs(*parts[i]);
  });
  const auto weight = [&](size_t pair) {
    uint64_t sum = 0;
    for (const auto& part : parts) sum += (*part)[pair].weight;
    return sum;
  };
  const auto sets = std::make_unique<WordShard::ByteSets>();
  uint64_t most = 0;
  for (size_t pair = 0; pair < sets->size(); ++pair) most = std::max(most, weight(pair));
  floor_ = std::max<uint64_t>({most / 16, 1, tracked_});
  for (uint32_t bytes = 0; bytes < sets->size(); ++bytes) {
    (*sets)[bytes] = WordShard::kNoSet;
    const uint64_t count = weight(bytes);
    if (count < tracked_) continue;
    const uint64_t pair = PairTable::Pair(bytes >> 8, bytes & 0xFF);
    PairTable::Slot& slot = pairs_.At(pair);
    slot.count = static_cast<int64_t>(count);
    (*sets)[bytes] = NewSet(slot);
    Push(pair, slot.set, slot.count);
  }
  InShards(true, [&](WordShard& shard, size_t i) { shard.ListBytePairs(*parts[i], *sets); });
  return ShardStatus();
}

// Adds the pairs whose count is at least `least` to the table, all of them or those with one token, and makes a set and
// a candidate for each.
absl::Status MergeState::Track(uint64_t least, uint32_t token) {
  std::vector<WordShard::Pairs> parts(shards_.size());
  InShards(true, [&](WordShard& shard, size_t i) { parts[i] = shard.FindPairs(token, pairs_); });
  absl::flat_hash_map<uint64_t, uint64_t> counts;
  for (const WordShard::Pairs& part : parts) {
    for (const auto& [pair, tally] : part) counts[pair] += tally.weight;
  }
  WordShard::PairSets sets;
  for (const auto& [pair, count] : counts) {
    if (count < least) continue;
    PairTable::Slot& slot = pairs_.At(pair);
    slot.count = static_cast<int64_t>(count);
    sets.emplace(pair, NewSet(slot));
    Push(pair, slot.set, slot.count);
  }
  if (sets.empty()) return absl::OkStatus();
  InShards(true, [&](WordShard& shard, size_t i) { shard.ListPairs(parts[i], sets); });
  return ShardStatus();
}

// Returns whether `b` merges before `a`, as std::push_heap orders.
inline bool MergeState::Before(const Candidate& a, const Candidate& b) const {
  if (a.count != b.count) return a.count < b.count;
  if (options_.ties == Ties::kSmallestIds) {
    return PairTable::Pair(a.left, a.right) > PairTable::Pair(b.left, b.right);
  }
  if (a.left_prefix != b.left_prefix) return a.left_prefix < b.left_prefix;
  if (a.left != b.left) return KeyOf(a.left) < KeyOf(b.left);
  if (a.right == b.right) return false;
  if (prefix_[a.right] != prefix_[b.right]) return prefix_[a.right] < prefix_[b.right];
  return KeyOf(a.right) < KeyOf(b.right);
}

void MergeState::PushCandidate(const Candidate& candidate) {
  if (candidate.count < floor_) {
    rare_.push_back(candidate);
    return;
  }
  heap_.push_back(candidate);
  std::push_heap(heap_.begin(), heap_.end(), [this](const auto& a, const auto& b) { return Before(a, b); });
}

void MergeState::Push(uint64_t pair, uint32_t set, int64_t count) {
  if (count <= 0) return;
  const auto left = static_cast<uint32_t>(pair >> 32);
  PushCandidate({static_cast<uint64_t>(count), prefix_[left], left, static_cast<uint32_t>(pair), set});
}

absl::StatusOr<bool> MergeState::Next(Candidate& best) {
  const auto order = [this](const auto& a, const auto& b) { return Before(a, b); };
  const uint64_t least = std::max<uint64_t>(options_.min_frequency, 1);
  while (true) {
    while (heap_.empty()) {
      if (floor_ <= tracked_) {
        if (tracked_ <= least) return false;
        tracked_ = std::max(tracked_ / kTrackStep, least);
        CAIRN_RETURN_IF_ERROR(Track(tracked_, WordShard::kAnyToken));
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
    if (count == static_cast<int64_t>(best.count)) {
      if (best.count < least) return false;
      if (!options_.veto) return true;
      CAIRN_ASSIGN_OR_RETURN(const bool refused, options_.veto(tokens_[best.left] + tokens_[best.right]));
      if (!refused) return true;
      continue;
    }
    if (count <= 0) continue;
    best.count = static_cast<uint64_t>(count);
    PushCandidate(best);
  }
}

std::vector<uint32_t> MergeState::AllSets(uint64_t pair) const {
  std::vector<uint32_t> sets;
  const PairTable::Slot* slot = pairs_.Find(pair);
  uint32_t set = slot == nullptr ? WordShard::kNoSet : slot->set;
  for (; set != WordShard::kNoSet; set = previous_set_[set]) sets.push_back(set);
  return sets;
}

// Forgets a pair after all its places were merged.
void MergeState::Forget(uint64_t pair) {
  PairTable::Slot* const slot = pairs_.Find(pair);
  if (slot == nullptr) return;
  slot->count = 0;
  slot->set = PairTable::kNoSet;
  slot->sets = 0;
}

// Merges the pair at the places of these sets, and counts what that changes.
absl::Status MergeState::DoMerge(uint32_t left, uint32_t right, std::span<const uint32_t> sets, bool whole_words) {
  std::string bytes = tokens_[left] + tokens_[right];
  const auto known = id_of_.find(bytes);
  const bool again = known != id_of_.end();
  const uint32_t result = again ? known->second : AddToken(std::move(bytes));
  // Pairs of a token that exists already come into being a second time. From now on all pairs of that token are
  // counted, and, if this happens often, all pairs of all tokens.
  if (again && tracked_ > 1) {
    if (++made_again_ > kMostMadeAgain) tracked_ = 1;
    CAIRN_RETURN_IF_ERROR(Track(1, tracked_ == 1 ? WordShard::kAnyToken : result));
  }
  merges_.push_back({left, right, result});
  const WordShard::Step step = {left, right, result, sets, whole_words};
  uint64_t places = pending_places_;
  for (const auto& shard : shards_) places += shard->PlacesOf(sets);
  InShards(places >= kTeamPlaces, [&](WordShard& shard, size_t) {
    shard.MakeLists(left_.sets, right_.sets);  // belongs to the last merge; here it needs no team step of its own
    shard.Merge(step);
  });
  CAIRN_RETURN_IF_ERROR(ShardStatus());
  CountChanges(step, again);
  return absl::OkStatus();
}

void MergeState::CountChanges(const WordShard::Step& step, bool again) {
  left_.Clear();
  right_.Clear();
  pending_places_ = 0;
  uint64_t before_result = 0;  // of the pairs (right, result) that became (result, result)
  for (const auto& shard : shards_) {
    left_.Add(shard->left());
    right_.Add(shard->right());
    before_result += shard->before_result();
  }
  // New pairs come first: of two places side by side, the second takes away a pair that the first has made.
  CountNewPairs(left_, true, step, again, before_result);
  CountNewPairs(right_, false, step, again, 0);
  const auto less = [&](uint64_t pair, uint64_t weight) {
    if (PairTable::Slot* slot = pairs_.Find(pair)) slot->count -= static_cast<int64_t>(weight);
  };
  if (before_result != 0) less(PairTable::Pair(step.right, step.result), before_result);
  for (size_t i = 0; i < left_.touched.size(); ++i) {
    if (i + kAhead < left_.touched.size()) pairs_.Prefetch(PairTable::Pair(left_.touched[i + kAhead], step.left));
    less(PairTable::Pair(left_.touched[i], step.left), left_.changes[left_.touched[i]].weight);
  }
  for (size_t i = 0; i < right_.touched.size(); ++i) {
    if (i + kAhead < right_.touched.size()) pairs_.Prefetch(PairTable::Pair(step.right, right_.touched[i + kAhead]));
    less(PairTable::Pair(step.right, right_.touched[i]), right_.changes[right_.touched[i]].weight);
  }
}

// Counts the new pairs on one side, and makes their sets and candidates.
void MergeState::CountNewPairs(Side& side, bool is_left, const WordShard::Step& step, bool again,
                               uint64_t more_of_result) {
  for (const uint32_t n : side.touched) {
    const uint64_t weight = side.changes[n].weight + (n == step.result ? more_of_result : 0);
    const uint64_t pair = is_left ? PairTable::Pair(n, step.result) : PairTable::Pair(step.result, n);
    PairTable::Slot* slot = nullptr;
    if (tracked_ <= 1 || weight >= tracked_) {
      slot = &pairs_.At(pair);
    } else if (again) {
      slot = pairs_.Find(pair);  // a new token has no pairs yet
    }
    if (slot == nullptr) continue;
    slot->count += static_cast<int64_t>(weight);
    side.sets[n] = NewSet(*slot);
    pending_places_ += side.changes[n].places;
    Push(pair, side.sets[n], slot->count);
  }
}

absl::Status MergeState::MergeAll(uint32_t left, uint32_t right) {
  const uint64_t pair = PairTable::Pair(left, right);
  CAIRN_RETURN_IF_ERROR(DoMerge(left, right, AllSets(pair), false));
  Forget(pair);
  return absl::OkStatus();
}

absl::Status MergeState::MergeBest(const Candidate& best) {
  if (options_.ties != Ties::kSmallestIds) return MergeAll(best.left, best.right);
  // For each time that a pair came into being, Hugging Face's trainer remembers the words where it did.
  const bool several = pairs_.Find(PairTable::Pair(best.left, best.right))->sets > 1;
  return DoMerge(best.left, best.right, std::span(&best.set, 1), several);
}

MergeResult MergeState::TakeResult() {
  if (options_.bytes_by_text) {
    // In Hugging Face's files a pair that merged twice counts at its later place.
    absl::flat_hash_set<uint64_t> seen;
    std::vector<Merge> kept;
    for (auto it = merges_.rbegin(); it != merges_.rend(); ++it) {
      if (seen.insert(PairTable::Pair(it->left, it->right)).second) kept.push_back(*it);
    }
    merges_.assign(kept.rbegin(), kept.rend());
  }
  return {std::move(tokens_), std::move(merges_)};
}

}  // namespace cairn::corpus
