#include "corpus/bpe/word_table.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace cairn::corpus {
namespace {

constexpr size_t kFirstSlots = size_t{1} << 12;
constexpr size_t kBatch = 32;

// Folded 128-bit multiplication, the mixing step of wyhash (Wang Yi, 2019).
inline uint64_t Mix(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t HashShort(uint64_t low, uint64_t high) {
  return Mix(low ^ 0xA0761D6478BD642Fu, high ^ 0xE7037ED1A0B428DBu);
}

inline uint64_t Load64(const char* p) {
  uint64_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

// More than 15 bytes.
uint64_t HashLong(std::string_view word) {
  uint64_t hash = word.size() * 0x9E3779B97F4A7C15u;
  const char* p = word.data();
  size_t left = word.size();
  for (; left > 16; left -= 16, p += 16) {
    hash = Mix(Load64(p) ^ 0xA0761D6478BD642Fu, Load64(p + 8) ^ hash ^ 0xE7037ED1A0B428DBu);
  }
  const char* const tail = word.data() + word.size() - 16;
  return Mix(Load64(tail) ^ 0x8EBC6AF09C88C6E3u, Load64(tail + 8) ^ hash);
}

constexpr std::array<std::array<uint64_t, 2>, 16> MakeMasks() {
  std::array<std::array<uint64_t, 2>, 16> masks{};
  for (size_t length = 0; length < 16; ++length) {
    masks[length][0] = length >= 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * length)) - 1;
    masks[length][1] = length <= 8 ? 0 : (uint64_t{1} << (8 * (length - 8))) - 1;
  }
  return masks;
}
constexpr auto kMasks = MakeMasks();

}  // namespace

WordTable::WordTable() : slots_(kFirstSlots), mask_(kFirstSlots - 1) {}

void WordTable::Clear() { *this = WordTable(); }

std::string_view WordTable::ArenaWord(const Key& key) const {
  const uint64_t place = key.high & ~kLongTag;
  const char* p = chunks_[place / kChunkBytes].get() + place % kChunkBytes;
  uint32_t length;
  std::memcpy(&length, p, sizeof(length));
  return {p + sizeof(length), length};
}

std::string_view WordTable::WordOf(const Slot& slot) const {
  if (IsLong(slot.key)) return ArenaWord(slot.key);
  return {reinterpret_cast<const char*>(&slot.key), static_cast<size_t>(slot.key.high >> 56)};
}

WordTable::Key WordTable::Store(std::string_view word, uint64_t hash) {
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
  return {hash, kLongTag | place};
}

inline void WordTable::AddShort(const Key& key, uint64_t hash, uint64_t count) {
  for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
    Slot& slot = slots_[i];
    if (slot.key.low == key.low && slot.key.high == key.high) {
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
    if (slot.key.low == hash && IsLong(slot.key) && ArenaWord(slot.key) == word) {
      slot.count += count;
      return;
    }
  }
}

void WordTable::Grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.count == 0) continue;
    const uint64_t hash = IsLong(slot.key) ? slot.key.low : HashShort(slot.key.low, slot.key.high);
    size_t i = hash & mask_;
    while (slots_[i].count != 0) i = (i + 1) & mask_;
    slots_[i] = slot;
  }
}

void WordTable::Add(std::string_view word, uint64_t count) {
  if (word.size() > kInlineBytes) return AddLong(word, HashLong(word), count);
  char bytes[16] = {};
  std::memcpy(bytes, word.data(), word.size());
  bytes[15] = static_cast<char>(word.size());
  const Key key = {Load64(bytes), Load64(bytes + 8)};
  AddShort(key, HashShort(key.low, key.high), count);
}

void WordTable::AddAll(const WordTable& other) {
  other.ForEach([this](std::string_view word, uint64_t count) { Add(word, count); });
}

// In batches: first the keys and hashes, with a prefetch of each slot, then the look-ups.
void WordTable::AddWords(std::string_view text, size_t begin, std::span<const uint32_t> ends,
                         const char* readable_end) {
  Key keys[kBatch];
  uint64_t hashes[kBatch];
  uint32_t starts[kBatch];
  for (size_t at = 0; at < ends.size();) {
    const size_t count = std::min(kBatch, ends.size() - at);
    for (size_t i = 0; i < count; ++i) {
      const size_t end = ends[at + i];
      const size_t length = end - begin;
      const char* const p = text.data() + begin;
      starts[i] = static_cast<uint32_t>(begin);
      if (length <= kInlineBytes) {
        if (readable_end - p >= 16) {
          keys[i] = {Load64(p) & kMasks[length][0], (Load64(p + 8) & kMasks[length][1]) | uint64_t{length} << 56};
        } else {
          char bytes[16] = {};
          std::memcpy(bytes, p, length);
          keys[i] = {Load64(bytes), Load64(bytes + 8) | uint64_t{length} << 56};
        }
        hashes[i] = HashShort(keys[i].low, keys[i].high);
      } else {
        hashes[i] = HashLong({p, length});
        keys[i].high = kLongTag;
      }
      __builtin_prefetch(&slots_[hashes[i] & mask_]);
      begin = end;
    }
    for (size_t i = 0; i < count; ++i) {
      if (IsLong(keys[i])) {
        AddLong(text.substr(starts[i], ends[at + i] - starts[i]), hashes[i], 1);
      } else {
        AddShort(keys[i], hashes[i], 1);
      }
    }
    at += count;
  }
}

}  // namespace cairn::corpus
