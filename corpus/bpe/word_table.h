// Counts of words: an open-addressing table made for billions of additions of mostly short byte strings.
#ifndef CAIRN_CORPUS_BPE_WORD_TABLE_H_
#define CAIRN_CORPUS_BPE_WORD_TABLE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "corpus/bpe/huge_pages.h"
#include "corpus/bpe/word_key.h"

namespace cairn::corpus {

// Words of up to 23 bytes live in their slot, so that one cache line answers for them; longer ones in an arena.
// The table has parts, and which part a word is in depends on the word only: several tables of as many parts can be
// put together part by part, on several threads. Otherwise not thread-safe.
class WordTable {
 public:
  explicit WordTable(size_t parts = 1);
  WordTable(WordTable&&) = default;
  WordTable& operator=(WordTable&&) = default;

  // Adds 1 for each word of `text`, which the ascending `ends` cut from `begin` on. Memory up to `readable_end`, at or
  // after the end of the text, may be read. The last words wait for their turn: Flush() must be called before the
  // memory of the text changes and before the table is asked for anything.
  void AddWords(std::string_view text, size_t begin, std::span<const uint32_t> ends, const char* readable_end);
  void Flush();
  // Adds `count` for a word that is not empty.
  void Add(std::string_view word, uint64_t count);
  // Takes over the counts of words of one part that both tables have: `other` has these words no more. After it nothing
  // can be added to `other`.
  void TakeShared(size_t part, WordTable& other);

  size_t parts() const { return parts_.size(); }
  // Distinct words.
  size_t size() const;
  // Memory that it will hold while it grows the next time.
  size_t bytes_when_growing() const;

  // Calls visit(std::string_view word, uint64_t count) for each word of a part, in no particular order.
  template <typename Visitor>
  void ForEach(size_t part, Visitor&& visit) const {
    const Part& p = parts_[part];
    for (size_t i = 0; i < p.slots.size(); ++i) {
      if (i + kAhead < p.slots.size()) p.PrefetchWord(p.slots[i + kAhead]);
      if (p.slots[i].count != 0) visit(p.WordOf(p.slots[i]), p.slots[i].count);
    }
  }

  // Forgets everything.
  void Clear();

 private:
  struct Slot {
    WordKey key;     // of a long word with the place in the arena
    uint64_t count;  // 0: free, or its word was taken over; then the key stays, and later slots can be reached
  };
  static_assert(sizeof(Slot) == 32);

  static constexpr size_t kChunkBytes = size_t{1} << 20;
  static constexpr size_t kAhead = 16;  // slots to prefetch

  struct Part {
    Part();

    const char* ArenaPlace(const WordKey& key) const;
    std::string_view ArenaWord(const WordKey& key) const;
    std::string_view WordOf(const Slot& slot) const {
      return slot.key.is_long() ? ArenaWord(slot.key) : slot.key.word();
    }
    void PrefetchWord(const Slot& slot) const {
      if (slot.key.is_long()) __builtin_prefetch(ArenaPlace(slot.key));
    }
    void Prefetch(uint64_t hash) const { __builtin_prefetch(&slots[hash & mask]); }
    WordKey Store(std::string_view word, uint64_t hash);
    void AddShort(const WordKey& key, uint64_t hash, uint64_t count);
    void AddLong(std::string_view word, uint64_t hash, uint64_t count);
    Slot* Find(const WordKey& key, uint64_t hash, std::string_view word);
    void Grow();

    HugeVector<Slot> slots;  // a power of two
    size_t mask;
    size_t used = 0;
    std::vector<std::unique_ptr<char[]>> chunks;  // of kChunkBytes, or of the size of one very long word
    size_t chunk_used = kChunkBytes;
    size_t arena_bytes = 0;
  };

  // A word that waits until its slot has come from memory.
  struct Waiting {
    WordKey key;
    uint64_t hash = 0;
    const char* bytes = nullptr;
    size_t size = 0;  // 0: none
  };
  static constexpr size_t kWaiting = 32;

  void Count(const Waiting& word);

  // By the upper bits of the hash; slots go by the lower ones.
  Part& PartOf(uint64_t hash) { return parts_[((hash >> 32) * parts_.size()) >> 32]; }

  std::vector<Part> parts_;
  std::array<Waiting, kWaiting> waiting_;  // a ring
  size_t oldest_ = 0;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_WORD_TABLE_H_
