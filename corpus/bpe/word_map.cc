#include "corpus/bpe/word_map.h"

#include <algorithm>
#include <cstring>

namespace cairn::corpus {
namespace {

constexpr size_t kFirstSlots = size_t{1} << 12;

}  // namespace

WordMap::WordMap() : index_(kFirstSlots), mask_(kFirstSlots - 1) {}

void WordMap::FreeEntries() {
  HugePageAllocator<Entry> allocator;
  for (Entry* const chunk : chunks_) allocator.deallocate(chunk, kEntriesPerChunk);
  chunks_.clear();
}

void WordMap::Clear() {
  FreeEntries();
  index_ = HugeVector<Slot>(kFirstSlots);
  mask_ = kFirstSlots - 1;
  size_ = 0;
  arena_.clear();
  arena_used_ = kArenaChunk;
  arena_bytes_ = 0;
}

std::string_view WordMap::ArenaWord(const WordKey& key) const {
  const uint64_t place = key.high & ~WordKey::kLongTag;
  const char* const p = arena_[place / kArenaChunk].get() + place % kArenaChunk;
  uint32_t length;
  std::memcpy(&length, p, sizeof(length));
  return {p + sizeof(length), length};
}

WordKey WordMap::Store(std::string_view word, uint64_t hash) {
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

uint32_t WordMap::Find(const WordKey& key, uint64_t hash, std::string_view word) const {
  const uint32_t tag = TagOf(hash);
  for (size_t i = tag & mask_;; i = (i + 1) & mask_) {
    const Slot slot = index_[i];
    if (slot.entry == kNone) return kNone;
    if (slot.tag == tag && Is((*this)[slot.entry], key, word)) return slot.entry;
  }
}

void WordMap::Grow() {
  HugeVector<Slot> old(index_.size() * 2);
  old.swap(index_);
  mask_ = index_.size() - 1;
  for (const Slot slot : old) {
    if (slot.entry == kNone) continue;
    size_t i = slot.tag & mask_;
    while (index_[i].entry != kNone) i = (i + 1) & mask_;
    index_[i] = slot;
  }
}

void WordMap::Insert(const WordKey& key, uint64_t hash, std::string_view word, uint64_t value) {
  if ((size_ + 1) * 5 > index_.size() * 3) Grow();
  if (size_ % kEntriesPerChunk == 0) chunks_.push_back(HugePageAllocator<Entry>().allocate(kEntriesPerChunk));
  const uint32_t tag = TagOf(hash);
  size_t i = tag & mask_;
  while (index_[i].entry != kNone) i = (i + 1) & mask_;
  index_[i] = {tag, static_cast<uint32_t>(size_)};
  (*this)[size_++] = {key.is_long() ? Store(word, hash) : key, value};
}

}  // namespace cairn::corpus
