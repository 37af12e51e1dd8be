#include "corpus/bpe/word_table.h"

#include <algorithm>
#include <cstring>

namespace cairn::corpus {
namespace {

constexpr size_t kFirstSlots = size_t{1} << 12;

}  // namespace

WordTable::WordTable(size_t parts) : parts_(parts) {}

void WordTable::Clear() { *this = WordTable(parts_.size()); }

size_t WordTable::size() const {
  size_t words = 0;
  for (const Part& part : parts_) words += part.used;
  return words;
}

size_t WordTable::bytes_when_growing() const {
  size_t bytes = 0;
  for (const Part& part : parts_) bytes += 3 * part.slots.capacity() * sizeof(Slot) + part.arena_bytes;
  return bytes;
}

WordTable::Part::Part() : slots(kFirstSlots), mask(kFirstSlots - 1) {}

const char* WordTable::Part::ArenaPlace(const WordKey& key) const {
  const uint64_t place = key.high & ~WordKey::kLongTag;
  return chunks[place / kChunkBytes].get() + place % kChunkBytes;
}

std::string_view WordTable::Part::ArenaWord(const WordKey& key) const {
  const char* const p = ArenaPlace(key);
  uint32_t length;
  std::memcpy(&length, p, sizeof(length));
  return {p + sizeof(length), length};
}

WordKey WordTable::Part::Store(std::string_view word, uint64_t hash) {
  const auto length = static_cast<uint32_t>(word.size());
  const size_t needed = sizeof(length) + word.size();
  if (needed > kChunkBytes - chunk_used) {
    const size_t size = std::max(needed, kChunkBytes);
    chunks.emplace_back(new char[size]);
    arena_bytes += size;
    chunk_used = 0;
  }
  char* p = chunks.back().get() + chunk_used;
  std::memcpy(p, &length, sizeof(length));
  std::memcpy(p + sizeof(length), word.data(), word.size());
  const uint64_t place = (chunks.size() - 1) * kChunkBytes + chunk_used;
  chunk_used = std::min(kChunkBytes, chunk_used + needed);
  return {hash, 0, WordKey::kLongTag | place};
}

inline void WordTable::Part::AddShort(const WordKey& key, uint64_t hash, uint64_t count) {
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    Slot& slot = slots[i];
    if (slot.key == key) {
      slot.count += count;
      return;
    }
    if (slot.count == 0) {
      slot = {key, count};
      if (++used * 5 > slots.size() * 3) Grow();
      return;
    }
  }
}

void WordTable::Part::AddLong(std::string_view word, uint64_t hash, uint64_t count) {
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    Slot& slot = slots[i];
    if (slot.count == 0) {
      slot = {Store(word, hash), count};
      if (++used * 5 > slots.size() * 3) Grow();
      return;
    }
    if (slot.key.low == hash && slot.key.is_long() && ArenaWord(slot.key) == word) {
      slot.count += count;
      return;
    }
  }
}

void WordTable::Part::Grow() {
  HugeVector<Slot> old(slots.size() * 2);
  old.swap(slots);
  mask = slots.size() - 1;
  for (const Slot& slot : old) {
    if (slot.count == 0) continue;
    size_t i = HashKey(slot.key) & mask;
    while (slots[i].count != 0) i = (i + 1) & mask;
    slots[i] = slot;
  }
}

WordTable::Slot* WordTable::Part::Find(const WordKey& key, uint64_t hash, std::string_view word) {
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    Slot& slot = slots[i];
    if (slot.count == 0) {
      if (slot.key.high == 0) return nullptr;
      continue;  // its word was taken over
    }
    if (key.is_long() ? slot.key.low == hash && slot.key.is_long() && ArenaWord(slot.key) == word : slot.key == key) {
      return &slot;
    }
  }
}

void WordTable::Add(std::string_view word, uint64_t count) {
  const WordKey key = MakeWordKey(word.data(), word.size(), word.data() + word.size());
  const uint64_t hash = HashKey(key);
  if (key.is_long()) return PartOf(hash).AddLong(word, hash, count);
  PartOf(hash).AddShort(key, hash, count);
}

void WordTable::TakeShared(size_t part, WordTable& other) {
  Part& ours = parts_[part];
  Part& theirs = other.parts_[part];
  HugeVector<Slot>& slots = theirs.slots;
  // Both tables order their words by the lower bits of the same hash: the look-ups run through ours nearly in order.
  for (size_t i = 0; i < slots.size(); ++i) {
    if (i + kAhead < slots.size()) theirs.PrefetchWord(slots[i + kAhead]);
    if (slots[i].count == 0) continue;
    Slot* const found = ours.Find(slots[i].key, HashKey(slots[i].key), theirs.WordOf(slots[i]));
    if (found == nullptr) continue;
    found->count += slots[i].count;
    slots[i].count = 0;
    --theirs.used;
  }
}

inline void WordTable::Count(const Waiting& word) {
  Part& part = PartOf(word.hash);
  if (word.key.is_long()) {
    part.AddLong({word.bytes, word.size}, word.hash, 1);
  } else {
    part.AddShort(word.key, word.hash, 1);
  }
}

// Each word's slot is asked for here and looked at when so many others have been read that it has come.
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
    PartOf(word.hash).Prefetch(word.hash);
    begin = end;
    at = (at + 1) % kWaiting;
  }
  oldest_ = at;
}

void WordTable::Flush() {
  for (Waiting& word : waiting_) {
    if (word.size != 0) Count(word);
    word.size = 0;
  }
}

}  // namespace cairn::corpus
