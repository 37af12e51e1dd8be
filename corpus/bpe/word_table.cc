#include "corpus/bpe/word_table.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace cairn::corpus {
namespace {

constexpr size_t kFirstSlots = size_t{1} << 12;
constexpr size_t kBatch = 32;

}  // namespace

WordTable::WordTable() : slots_(kFirstSlots), mask_(kFirstSlots - 1) {}

void WordTable::Clear() { *this = WordTable(); }

std::string_view WordTable::ArenaWord(const WordKey& key) const {
  const uint64_t place = key.high & ~WordKey::kLongTag;
  const char* p = chunks_[place / kChunkBytes].get() + place % kChunkBytes;
  uint32_t length;
  std::memcpy(&length, p, sizeof(length));
  return {p + sizeof(length), length};
}

std::string_view WordTable::WordOf(const Slot& slot) const {
  if (slot.key.is_long()) return ArenaWord(slot.key);
  return slot.key.word();
}

WordKey WordTable::Store(std::string_view word, uint64_t hash) {
  const auto length = static_cast<uint32_t>(word.size());
  const size_t needed = sizeof(length) + word.size();
  if (needed > kChunkBytes - chunk_used_) {
    const size_t size = std::max(needed, kChunkBytes);
    chunks_.emplace_back(new char[size]);
    arena_bytes_ += size;
    chunk_used_ = 0;
  }
  char* p = chunks_.back().get() + chunk_used_;
  std::memcpy(p, &length, sizeof(length));
  std::memcpy(p + sizeof(length), word.data(), word.size());
  const uint64_t place = (chunks_.size() - 1) * kChunkBytes + chunk_used_;
  chunk_used_ = std::min(kChunkBytes, chunk_used_ + needed);
  return {hash, WordKey::kLongTag | place};
}

inline void WordTable::AddShort(const WordKey& key, uint64_t hash, uint64_t count) {
  for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
    Slot& slot = slots_[i];
    if (slot.key == key) {
      slot.count += count;
      return;
    }
    if (slot.count == 0) {
      slot = {key, count};
      if (++used_ * 5 > slots_.size() * 3) Grow();
      return;
    }
  }
}

void WordTable::AddLong(std::string_view word, uint64_t hash, uint64_t count) {
  for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
    Slot& slot = slots_[i];
    if (slot.count == 0) {
      slot = {Store(word, hash), count};
      if (++used_ * 5 > slots_.size() * 3) Grow();
      return;
    }
    if (slot.key.low == hash && slot.key.is_long() && ArenaWord(slot.key) == word) {
      slot.count += count;
      return;
    }
  }
}

void WordTable::Grow() {
  HugeVector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.count == 0) continue;
    const uint64_t hash = HashKey(slot.key);
    size_t i = hash & mask_;
    while (slots_[i].count != 0) i = (i + 1) & mask_;
    slots_[i] = slot;
  }
}

void WordTable::Add(std::string_view word, uint64_t count) {
  const WordKey key = MakeWordKey(word.data(), word.size(), word.data() + word.size());
  if (key.is_long()) return AddLong(word, key.low, count);
  AddShort(key, HashKey(key), count);
}

void WordTable::AddAll(const WordTable& other) {
  other.ForEach([this](std::string_view word, uint64_t count) { Add(word, count); });
}

// In batches: first the keys and hashes, with a prefetch of each slot, then the look-ups.
void WordTable::AddWords(std::string_view text, size_t begin, std::span<const uint32_t> ends,
                         const char* readable_end) {
  WordKey keys[kBatch];
  uint64_t hashes[kBatch];
  uint32_t starts[kBatch];
  for (size_t at = 0; at < ends.size();) {
    const size_t count = std::min(kBatch, ends.size() - at);
    for (size_t i = 0; i < count; ++i) {
      const size_t end = ends[at + i];
      starts[i] = static_cast<uint32_t>(begin);
      keys[i] = MakeWordKey(text.data() + begin, end - begin, readable_end);
      hashes[i] = HashKey(keys[i]);
      __builtin_prefetch(&slots_[hashes[i] & mask_]);
      begin = end;
    }
    for (size_t i = 0; i < count; ++i) {
      if (keys[i].is_long()) {
        AddLong(text.substr(starts[i], ends[at + i] - starts[i]), hashes[i], 1);
      } else {
        AddShort(keys[i], hashes[i], 1);
      }
    }
    at += count;
  }
}

}  // namespace cairn::corpus
