// Counts of words: an open-addressing table made for billions of additions of mostly short byte strings.
#ifndef CAIRN_CORPUS_BPE_WORD_TABLE_H_
#define CAIRN_CORPUS_BPE_WORD_TABLE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "corpus/bpe/huge_pages.h"
#include "corpus/bpe/word_key.h"

namespace cairn::corpus {

// Words of up to 15 bytes live in their slot, so that one cache line answers for them; longer ones in an arena.
// Not thread-safe.
class WordTable {
 public:
  WordTable();
  WordTable(WordTable&&) = default;
  WordTable& operator=(WordTable&&) = default;

  // Adds 1 for each word of `text`, which the ascending `ends` cut from `begin` on. Memory up to `readable_end`, at or
  // after the end of the text, may be read.
  void AddWords(std::string_view text, size_t begin, std::span<const uint32_t> ends, const char* readable_end);
  // Adds `count` for a word that is not empty.
  void Add(std::string_view word, uint64_t count);
  void AddAll(const WordTable& other);

  size_t size() const { return used_; }
  // Memory that it holds now, and that it will hold while it grows the next time.
  size_t bytes() const { return slots_.capacity() * sizeof(Slot) + arena_bytes_; }
  size_t bytes_when_growing() const { return 3 * slots_.capacity() * sizeof(Slot) + arena_bytes_; }

  // Calls visit(std::string_view word, uint64_t count) for each word, in no particular order.
  template <typename Visitor>
  void ForEach(Visitor&& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.count != 0) visit(WordOf(slot), slot.count);
    }
  }

  void Clear();

 private:
  struct Slot {
    WordKey key;     // of a long word with the place in the arena
    uint64_t count;  // 0: free
  };

  static constexpr size_t kChunkBytes = size_t{1} << 20;

  std::string_view WordOf(const Slot& slot) const;
  std::string_view ArenaWord(const WordKey& key) const;
  WordKey Store(std::string_view word, uint64_t hash);
  void AddShort(const WordKey& key, uint64_t hash, uint64_t count);
  void AddLong(std::string_view word, uint64_t hash, uint64_t count);
  void Grow();

  HugeVector<Slot> slots_;  // a power of two
  size_t mask_;
  size_t used_ = 0;
  std::vector<std::unique_ptr<char[]>> chunks_;  // of kChunkBytes, or of the size of one very long word
  size_t chunk_used_ = kChunkBytes;
  size_t arena_bytes_ = 0;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_WORD_TABLE_H_
