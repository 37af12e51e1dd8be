#include "corpus/bpe/bpe_model.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "corpus/unicode/ascii.h"
#include "corpus/unicode/class_table.h"

namespace cairn::corpus {
namespace {

constexpr size_t kFirstSlots = 1024;

size_t HashPair(uint64_t pair) {
  pair *= 0x9E3779B97F4A7C15u;
  return pair ^ pair >> 32;
}

uint64_t PairOf(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

}  // namespace

BpeModel::BpeModel() : merges_(kFirstSlots), filter_(kFirstSlots / 4) {
  std::fill(std::begin(byte_id_), std::end(byte_id_), kNone);
}

void BpeModel::AddToken(std::string bytes, uint32_t id) {
  if (bytes.size() == 1) byte_id_[static_cast<uint8_t>(bytes[0])] = id;
  id_of_[std::move(bytes)] = id;
}

void BpeModel::AddMerge(uint32_t left, uint32_t right, uint32_t rank, uint32_t result) {
  if ((merge_count_ + 1) * 5 > merges_.size() * 4) GrowMerges();
  const uint64_t pair = PairOf(left, right);
  size_t i = HashPair(pair) & (merges_.size() - 1);
  while (merges_[i].rank != kNone && merges_[i].pair != pair) i = (i + 1) & (merges_.size() - 1);
  if (merges_[i].rank == kNone) ++merge_count_;
  merges_[i] = {pair, rank, result};
  Mark(HashPair(pair));
}

inline void BpeModel::Mark(size_t hash) {
  const size_t bit = (hash >> 32) & (filter_.size() * 64 - 1);
  filter_[bit / 64] |= uint64_t{1} << bit % 64;
}

void BpeModel::GrowMerges() {
  std::vector<MergeSlot> old(merges_.size() * 2);
  old.swap(merges_);
  filter_.assign(merges_.size() / 4, 0);
  for (const MergeSlot& slot : old) {
    if (slot.rank == kNone) continue;
    size_t i = HashPair(slot.pair) & (merges_.size() - 1);
    while (merges_[i].rank != kNone) i = (i + 1) & (merges_.size() - 1);
    merges_[i] = slot;
    Mark(HashPair(slot.pair));
  }
}

inline const BpeModel::MergeSlot* BpeModel::FindMerge(uint32_t left, uint32_t right) const {
  const uint64_t pair = PairOf(left, right);
  const size_t mask = merges_.size() - 1;
  const size_t hash = HashPair(pair);
  const size_t bit = (hash >> 32) & (filter_.size() * 64 - 1);
  if (!(filter_[bit / 64] >> bit % 64 & 1)) return nullptr;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const MergeSlot& slot = merges_[i];
    if (slot.pair == pair) return &slot;
    if (slot.rank == kNone) return nullptr;
  }
}

void BpeModel::Finish() {
  const std::vector<absl::string_view> bytes_of = BytesOfIds();
  const std::vector<MergeTable::Merge> merges = AllMerges();
  MakeTable(merges);
  if (by_character_) {
    for (size_t byte = 0; byte < fallback_.size(); ++byte) {
      fallback_[byte] = Find(absl::StrFormat("<0x%02X>", byte)).value_or(kNone);
    }
    three_bytes_id_.assign(size_t{1} << 16, kNone);
    for (const auto& [bytes, id] : id_of_) {
      const auto* const p = reinterpret_cast<const uint8_t*>(bytes.data());
      if (bytes.size() != 3 || p[0] < 0xE0 || p[0] >= 0xF0) continue;
      if (!IsUtf8Continuation(p[1]) || !IsUtf8Continuation(p[2])) continue;
      three_bytes_id_[(p[0] & 0xF) << 12 | (p[1] & 0x3F) << 6 | (p[2] & 0x3F)] = id;
    }
    if (!bytes_of.empty() && CanCutCharacters(merges))
      cuts_ = WordCuts(bytes_of, merges, WordCuts::Symbols::kCharacters);
    return;
  }
  if (std::find(std::begin(byte_id_), std::end(byte_id_), kNone) != std::end(byte_id_)) return;
  if (!table_.empty()) {
    FindBytePairs();
    whole_characters_ = WholeCharacters(bytes_of, merges, table_, byte_id_);
  }
  if (!ignore_merges_ && !bytes_of.empty()) cuts_ = WordCuts(bytes_of, merges, WordCuts::Symbols::kBytes);
}

// Places for cuts are known by the bytes of tokens. So the bytes of every symbol must be those of the text, unless it
// never merges; no character may vanish; and what becomes of a character may not depend on its neighbours.
bool BpeModel::CanCutCharacters(std::span<const MergeTable::Merge> merges) const {
  if (ignore_merges_ || !prefix_.empty() || !suffix_.empty()) return false;
  const bool all_bytes = byte_fallback_ && std::find(fallback_.begin(), fallback_.end(), kNone) == fallback_.end();
  if (!all_bytes && (unknown_ == kNone || fuse_unknown_ || byte_fallback_)) return false;
  const auto has_other_bytes = [&](uint32_t id) {
    return id == unknown_ || (byte_fallback_ && std::find(fallback_.begin(), fallback_.end(), id) != fallback_.end());
  };
  return std::none_of(merges.begin(), merges.end(), [&](const MergeTable::Merge& merge) {
    return has_other_bytes(merge.left) || has_other_bytes(merge.right);
  });
}

// Returns nothing if an id has several tokens.
std::vector<absl::string_view> BpeModel::BytesOfIds() const {
  std::vector<absl::string_view> bytes_of;
  for (const auto& [bytes, id] : id_of_) {
    if (id >= bytes_of.size()) bytes_of.resize(id + 1);
    if (!bytes_of[id].empty()) return {};
    bytes_of[id] = bytes;
  }
  return bytes_of;
}

std::vector<MergeTable::Merge> BpeModel::AllMerges() const {
  std::vector<MergeTable::Merge> merges;
  merges.reserve(merge_count_);
  for (const MergeSlot& slot : merges_) {
    if (slot.rank == kNone) continue;
    merges.push_back(
        {static_cast<uint32_t>(slot.pair >> 32), static_cast<uint32_t>(slot.pair), slot.rank, slot.result});
  }
  return merges;
}

void BpeModel::MakeTable(std::span<const MergeTable::Merge> merges) {
  uint32_t most_id = unknown_ == kNone ? 0 : unknown_;
  for (const auto& [bytes, id] : id_of_) most_id = std::max(most_id, id);
  for (const MergeTable::Merge& merge : merges) most_id = std::max({most_id, merge.left, merge.right, merge.result});
  table_ = MergeTable(merges, most_id);
}

void BpeModel::FindBytePairs() {
  byte_merges_.resize(256 * 256);
  for (size_t pair = 0; pair < byte_merges_.size(); ++pair) {
    byte_merges_[pair] = table_.Find(byte_id_[pair >> 8], byte_id_[pair & 0xFF]);
  }
}

std::optional<uint32_t> BpeModel::Find(std::string_view bytes) const {
  const auto it = id_of_.find(absl::string_view(bytes.data(), bytes.size()));
  if (it == id_of_.end()) return std::nullopt;
  return it->second;
}

void BpeModel::Start(std::string_view word, std::vector<uint32_t>& ids) const {
  if (by_character_) return StartCharacters(word, ids);
  if (!whole_characters_.empty()) return whole_characters_.Start(word, ids);
  return StartBytes(word, ids);
}

void BpeModel::StartBytes(std::string_view word, std::vector<uint32_t>& ids) const {
  bool after_unknown = false;
  for (const char c : word) {
    uint32_t id = byte_id_[static_cast<uint8_t>(c)];
    if (id != kNone) {
      after_unknown = false;
    } else {
      if (unknown_ == kNone || (fuse_unknown_ && after_unknown)) continue;
      id = unknown_;
      after_unknown = true;
    }
    ids.push_back(id);
  }
}

// Finds what stands for one character of a word, perhaps with the prefix or suffix.
inline uint32_t BpeModel::IdOfCharacter(std::string_view text) const {
  const auto* const p = reinterpret_cast<const uint8_t*>(text.data());
  if (text.size() == 1) return byte_id_[*p];
  if (text.size() == 3 && p[0] >= 0xE0) return three_bytes_id_[(p[0] & 0xF) << 12 | (p[1] & 0x3F) << 6 | (p[2] & 0x3F)];
  return Find(text).value_or(kNone);
}

void BpeModel::StartCharacters(std::string_view word, std::vector<uint32_t>& ids) const {
  std::string affixed;
  bool unknown_waits = false;
  // An unknown character is added when the next known one is, which may be behind the bytes of others: so does Hugging
  // Face's model.
  const auto add_unknown = [&] {
    if (unknown_waits) ids.push_back(unknown_);
    unknown_waits = false;
  };
  for (size_t i = 0, end; i < word.size(); i = end) {
    end = i + 1;
    while (end < word.size() && (static_cast<uint8_t>(word[end]) & 0xC0) == 0x80) ++end;
    std::string_view character = word.substr(i, end - i);
    if ((i > 0 && !prefix_.empty()) || (end == word.size() && !suffix_.empty())) {
      affixed.assign(i > 0 ? prefix_ : "").append(character).append(end == word.size() ? suffix_ : "");
      character = affixed;
    }
    if (const uint32_t id = IdOfCharacter(character); id != kNone) {
      add_unknown();
      ids.push_back(id);
      continue;
    }
    if (byte_fallback_ && std::all_of(character.begin(), character.end(),
                                      [&](char c) { return fallback_[static_cast<uint8_t>(c)] != kNone; })) {
      for (const char c : character) ids.push_back(fallback_[static_cast<uint8_t>(c)]);
      continue;
    }
    if (unknown_ == kNone) continue;
    if (!fuse_unknown_) add_unknown();
    unknown_waits = true;
  }
  add_unknown();
}

bool BpeModel::Begin(std::string_view word, Scratch& scratch, ShortWord& symbols) const {
  if (table_.empty() || (ignore_merges_ && Find(word))) return false;
  if (!byte_merges_.empty() && (whole_characters_.empty() || IsAscii(word))) {
    if (word.size() > ShortWord::kMost) return false;
    symbols.count = word.size();
    const auto* const bytes = reinterpret_cast<const uint8_t*>(word.data());
    for (size_t i = 0; i < word.size(); ++i) symbols.ids[i + 1] = byte_id_[bytes[i]];
    for (size_t i = 1; i < word.size(); ++i) symbols.merges[i] = byte_merges_[bytes[i - 1] << 8 | bytes[i]];
  } else {
    scratch.ids.clear();
    Start(word, scratch.ids);
    if (scratch.ids.size() > ShortWord::kMost) return false;
    symbols.count = scratch.ids.size();
    std::copy(scratch.ids.begin(), scratch.ids.end(), symbols.ids + 1);
    for (size_t i = 1; i < symbols.count; ++i) table_.AskFor(symbols.ids[i], symbols.ids[i + 1]);
    for (size_t i = 1; i < symbols.count; ++i) {
      symbols.merges[i] = table_.Find(symbols.ids[i], symbols.ids[i + 1]);
    }
  }
  symbols.Start(table_);
  return true;
}

void BpeModel::EncodeApart(std::string_view word, Scratch& scratch, std::vector<uint32_t>& ids) const {
  if (ignore_merges_) {
    if (const auto whole = Find(word)) {
      ids.push_back(*whole);
      return;
    }
  }
  scratch.ids.clear();
  Start(word, scratch.ids);
  MergeLong(scratch);
  ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
}

void BpeModel::Encode(std::string_view word, Scratch& scratch, std::vector<uint32_t>& ids) const {
  ShortWord& symbols = scratch.short_words[0];
  if (!Begin(word, scratch, symbols)) return EncodeApart(word, scratch, ids);
  ShortWord* words = &symbols;
  merge_words_(table_, {&words, 1});
  symbols.Append(ids);
}

void BpeModel::Encode(std::span<const std::string_view> words, Scratch& scratch, EncodedWords& made) const {
  constexpr size_t kTogether = Scratch::kTogether;
  ShortWord* const symbols = scratch.short_words.data();
  for (; !words.empty(); words = words.subspan(std::min(kTogether, words.size()))) {
    const auto group = words.first(std::min(kTogether, words.size()));
    ShortWord* short_words[kTogether];
    size_t count = 0;
    bool apart[kTogether];
    for (size_t i = 0; i < group.size(); ++i) {
      apart[i] = !Begin(group[i], scratch, symbols[i]);
      if (!apart[i]) short_words[count++] = &symbols[i];
    }
    merge_words_(table_, {short_words, count});
    for (size_t i = 0; i < group.size(); ++i) {
      if (apart[i]) {
        EncodeApart(group[i], scratch, made.ids);
      } else {
        symbols[i].Append(made.ids);
      }
      made.ends.push_back(made.ids.size());
    }
  }
}

// Uses a heap and a linked list, which takes n log n for a word of length n.
void BpeModel::MergeLong(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto count = static_cast<uint32_t>(scratch.ids.size());
  const auto after = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  symbols.resize(count);
  heap.clear();
  const auto add = [&](uint32_t at) {
    const uint32_t next = symbols[at].next;
    if (next == kNone) return false;
    const MergeSlot* merge = FindMerge(symbols[at].id, symbols[next].id);
    if (merge == nullptr) return false;
    heap.push_back({merge->rank, at, symbols[at].id, symbols[next].id, merge->result});
    return true;
  };
  for (uint32_t i = 0; i < count; ++i)
    symbols[i] = {scratch.ids[i], i == 0 ? kNone : i - 1, i + 1 < count ? i + 1 : kNone};
  for (uint32_t i = 0; i + 1 < count; ++i) add(i);
  std::make_heap(heap.begin(), heap.end(), after);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), after);
    const Scratch::Candidate best = heap.back();
    heap.pop_back();
    Scratch::Symbol& left = symbols[best.at];
    // A symbol that was merged away has the id kNone.
    if (left.id != best.left || left.next == kNone || symbols[left.next].id != best.right) continue;
    Scratch::Symbol& right = symbols[left.next];
    left.id = best.result;
    left.next = right.next;
    if (right.next != kNone) symbols[right.next].previous = best.at;
    right.id = kNone;
    if (left.previous != kNone && add(left.previous)) std::push_heap(heap.begin(), heap.end(), after);
    if (add(best.at)) std::push_heap(heap.begin(), heap.end(), after);
  }
  scratch.ids.clear();
  for (const Scratch::Symbol& symbol : symbols) {
    if (symbol.id != kNone) scratch.ids.push_back(symbol.id);
  }
}

}  // namespace cairn::corpus
