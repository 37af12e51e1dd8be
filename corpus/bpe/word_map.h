// Maps words to 64-bit values. It is a hash table for billions of look-ups of mostly short byte strings.
#ifndef CAIRN_CORPUS_BPE_WORD_MAP_H_
#define CAIRN_CORPUS_BPE_WORD_MAP_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "corpus/bpe/huge_pages.h"
#include "corpus/bpe/word_key.h"

namespace cairn::corpus {

// Entries lie in the order in which they came, so those of frequent words, which come early, share few cache lines and
// pages. An open-addressing table with eight bytes per slot finds them. A word of up to 23 bytes is in its entry, a
// longer one in an arena.
// A look-up waits twice for memory. A caller with many words asks for all slots first (AskForSlot), then for all
// entries (AskForEntry), and then looks.
// Not thread-safe, except that several threads may call const members.
class WordMap {
 public:
  struct Entry {
    WordKey key;  // a long word's key has its place in the arena
    uint64_t value;
  };
  static_assert(sizeof(Entry) == 32);

  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr size_t kMostWords = size_t{1} << 31;  // the owner must clear it before it has twice as many

  WordMap();
  ~WordMap() { FreeEntries(); }
  WordMap(const WordMap&) = delete;
  WordMap& operator=(const WordMap&) = delete;

  size_t size() const { return size_; }
  Entry& operator[](size_t i) { return chunks_[i / kEntriesPerChunk][i % kEntriesPerChunk]; }
  const Entry& operator[](size_t i) const { return chunks_[i / kEntriesPerChunk][i % kEntriesPerChunk]; }
  // The result is valid until the map is cleared; that of a short word, as long as its entry.
  std::string_view WordOf(const Entry& entry) const {
    return entry.key.is_long() ? ArenaWord(entry.key) : entry.key.word();
  }

  void AskForSlot(uint64_t hash) const { __builtin_prefetch(&index_[TagOf(hash) & mask_]); }
  // Returns the number of the entry that this hash leads to, which is most likely the word's; or kNone.
  uint32_t AskForEntry(uint64_t hash) const {
    const uint32_t tag = TagOf(hash);
    size_t i = tag & mask_;
    while (index_[i].tag != tag && index_[i].entry != kNone) i = (i + 1) & mask_;
    if (index_[i].entry != kNone) __builtin_prefetch(&(*this)[index_[i].entry], 1);
    return index_[i].entry;
  }
  // Returns whether an entry is that of the word.
  bool Is(const Entry& entry, const WordKey& key, std::string_view word) const {
    if (!key.is_long()) return entry.key == key;
    return entry.key.low == key.low && entry.key.is_long() && ArenaWord(entry.key) == word;
  }
  // Returns the number of the word's entry, or kNone. `key` and `hash` must be those of the word.
  uint32_t Find(const WordKey& key, uint64_t hash, std::string_view word) const;
  // Adds an entry for a word that is not there.
  void Insert(const WordKey& key, uint64_t hash, std::string_view word, uint64_t value);

  // Returns how much memory the map will hold while it grows the next time.
  size_t bytes_when_growing() const {
    return 3 * index_.capacity() * sizeof(Slot) + (chunks_.size() + 1) * kHugePageBytes + arena_bytes_;
  }
  size_t arena_bytes() const { return arena_bytes_; }

  // Forgets everything.
  void Clear();

 private:
  struct Slot {
    uint32_t tag = 0;  // the upper half of the word's hash; the slot's place depends on it
    uint32_t entry = kNone;
  };
  static constexpr size_t kEntriesPerChunk = kHugePageBytes / sizeof(Entry);
  static constexpr size_t kArenaChunk = size_t{1} << 20;

  static uint32_t TagOf(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }
  std::string_view ArenaWord(const WordKey& key) const;
  WordKey Store(std::string_view word, uint64_t hash);
  void Grow();
  void FreeEntries();

  HugeVector<Slot> index_;  // a power of two
  size_t mask_;
  std::vector<Entry*> chunks_;
  size_t size_ = 0;
  std::vector<std::unique_ptr<char[]>> arena_;  // chunks of kArenaChunk, or of the size of one very long word
  size_t arena_used_ = kArenaChunk;             // in the last chunk
  size_t arena_bytes_ = 0;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_WORD_MAP_H_
