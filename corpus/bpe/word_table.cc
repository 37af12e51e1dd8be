#include "corpus/bpe/word_table.h"

#include <algorithm>
#include <cstring>

namespace cairn::corpus {
namespace {

constexpr size_t kFirstSlots = size_t{1} << 12;

}  // namespace

WordTable::WordTable() : index_(kFirstSlots), mask_(kFirstSlots - 1) {}

void WordTable::FreeEntries() {
  HugePageAllocator<Entry> allocator;
  for (Entry* const chunk : chunks_) allocator.deallocate(chunk, kEntriesPerChunk);
  chunks_.clear();
}

void WordTable::Clear() {
  FreeEntries();
  index_ = HugeVector<IndexSlot>(kFirstSlots);
  mask_ = kFirstSlots - 1;
  size_ = 0;
  arena_.clear();
  arena_used_ = kArenaChunk;
  arena_bytes_ = 0;
  waiting_ = {};
}

std::string_view WordTable::ArenaWord(const WordKey& key) const {
  const uint64_t place = key.high & ~WordKey::kLongTag;
  const char* const p = arena_[place / kArenaChunk].get() + place % kArenaChunk;
  uint32_t length;
  std::memcpy(&length, p, sizeof(length));
  return {p + sizeof(length), length};
}

WordKey WordTable::Store(std::string_view word, uint64_t hash) {
  const auto length = static_cast<uint32_t>(word.size());
  const size_t needed = sizeof(length) + word.size();
  if (needed > kArenaChunk - arena_used_) {
    const size_t size = std::max(needed, kArenaChunk);
    arena_.emplace_back(new char[size]);
    arena_bytes_ += size;
    arena_used_ = 0;
  }
  char* p = arena_.back().get() + arena_used_;
  std::memcpy(p, &length, sizeof(length));
  std::memcpy(p + sizeof(length), word.data(), word.size());
  const uint64_t place = (arena_.size() - 1) * kArenaChunk + arena_used_;
  arena_used_ = std::min(kArenaChunk, arena_used_ + needed);
  return {hash, 0, WordKey::kLongTag | place};
}

inline bool WordTable::Is(const Entry& entry, const WordKey& key, std::string_view word) const {
  if (!key.is_long()) return entry.key == key;
  return entry.key.low == key.low && entry.key.is_long() && ArenaWord(entry.key) == word;
}

uint32_t WordTable::Find(const WordKey& key, uint64_t hash, std::string_view word) const {
  const uint32_t tag = TagOf(hash);
  for (size_t i = tag & mask_;; i = (i + 1) & mask_) {
    const IndexSlot slot = index_[i];
    if (slot.entry == kNone) return kNone;
    if (slot.tag == tag && Is(EntryAt(slot.entry), key, word)) return slot.entry;
  }
}

void WordTable::Grow() {
  HugeVector<IndexSlot> old(index_.size() * 2);
  old.swap(index_);
  mask_ = index_.size() - 1;
  for (const IndexSlot slot : old) {
    if (slot.entry == kNone) continue;
    size_t i = slot.tag & mask_;
    while (index_[i].entry != kNone) i = (i + 1) & mask_;
    index_[i] = slot;
  }
}

void WordTable::Add(const WordKey& key, uint64_t hash, std::string_view word, uint64_t count) {
  const uint32_t known = Find(key, hash, word);
  if (known != kNone) {
    EntryAt(known).count += count;
    return;
  }
  if ((size_ + 1) * 5 > index_.size() * 3) Grow();
  if (size_ % kEntriesPerChunk == 0) chunks_.push_back(HugePageAllocator<Entry>().allocate(kEntriesPerChunk));
  const uint32_t tag = TagOf(hash);
  size_t i = tag & mask_;
  while (index_[i].entry != kNone) i = (i + 1) & mask_;
  index_[i] = {tag, static_cast<uint32_t>(size_)};
  EntryAt(size_++) = {key.is_long() ? Store(word, hash) : key, count};
}

void WordTable::Add(std::string_view word, uint64_t count) {
  const WordKey key = MakeWordKey(word.data(), word.size(), word.data() + word.size());
  Add(key, HashKey(key), word, count);
}

inline void WordTable::AskForEntry(Waiting& word) const {
  const uint32_t tag = TagOf(word.hash);
  size_t i = tag & mask_;
  while (index_[i].tag != tag && index_[i].entry != kNone) i = (i + 1) & mask_;
  word.entry = index_[i].entry;
  if (word.entry != kNone) __builtin_prefetch(&EntryAt(word.entry), 1);
}

inline void WordTable::Count(const Waiting& word) {
  if (word.entry != kNone && !word.key.is_long()) {
    Entry& entry = EntryAt(word.entry);
    if (entry.key == word.key) {
      ++entry.count;
      return;
    }
  }
  Add(word.key, word.hash, {word.bytes, word.size}, 1);
}

void WordTable::AddWords(std::string_view text, size_t begin, std::span<const uint32_t> ends,
                         const char* readable_end) {
  size_t at = oldest_;
  for (const uint32_t end : ends) {
    Waiting& word = waiting_[at];
    if (word.size != 0) Count(word);
    const char* const bytes = text.data() + begin;
    word.key = MakeWordKey(bytes, end - begin, readable_end);
    word.hash = HashKey(word.key);
    word.bytes = bytes;
    word.size = end - begin;
    word.entry = kNone;
    __builtin_prefetch(&index_[TagOf(word.hash) & mask_]);
    Waiting& halfway = waiting_[(at + kWaiting / 2) % kWaiting];
    if (halfway.size != 0) AskForEntry(halfway);
    begin = end;
    at = (at + 1) % kWaiting;
  }
  oldest_ = at;
}

void WordTable::Flush() {
  for (size_t i = 0; i < kWaiting; ++i) {
    Waiting& word = waiting_[(oldest_ + i) % kWaiting];
    if (word.size != 0) Count(word);
    word.size = 0;
  }
}

void WordTable::TakeShared(size_t part, size_t parts, WordTable& other) {
  for (size_t i = 0; i < other.size_; ++i) {
    Entry& theirs = other.EntryAt(i);
    if (theirs.count == 0) continue;
    const uint64_t hash = HashKey(theirs.key);
    if (PartOf(hash, parts) != part) continue;
    const uint32_t ours = Find(theirs.key, hash, other.WordOf(theirs));
    if (ours == kNone) continue;
    EntryAt(ours).count += theirs.count;
    theirs.count = 0;
  }
}

}  // namespace cairn::corpus
