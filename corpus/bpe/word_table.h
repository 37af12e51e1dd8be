// Counts of words: a hash table made for billions of additions of mostly short byte strings.
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

// Words lie in the order in which they came, so that the frequent ones, which come early, share few cache lines and
// pages; an open-addressing table of eight bytes per slot finds them. Words of up to 23 bytes are in their entry,
// longer ones in an arena. The words of several tables can be put together on several threads, each of which does one
// of `parts`; which part a word is in depends on the word only. Otherwise not thread-safe.
class WordTable {
 public:
  // A table does not take more words than this and those of one text that began before.
  static constexpr size_t kMostWords = size_t{1} << 31;

  WordTable();
  ~WordTable() { FreeEntries(); }
  WordTable(const WordTable&) = delete;
  WordTable& operator=(const WordTable&) = delete;

  // Adds 1 for each word of `text`, which the ascending `ends` cut from `begin` on. Memory up to `readable_end`, at or
  // after the end of the text, may be read. The last words wait for their turn: Flush() must be called before the
  // memory of the text changes and before the table is asked for anything.
  void AddWords(std::string_view text, size_t begin, std::span<const uint32_t> ends, const char* readable_end);
  void Flush();
  // Adds `count` for a word that is not empty.
  void Add(std::string_view word, uint64_t count);
  // Takes over the counts of those words of a part that both tables have: in `other` they have none any more.
  void TakeShared(size_t part, size_t parts, WordTable& other);

  // Words that were added.
  size_t size() const { return size_; }
  // Memory that it will hold while it grows the next time.
  size_t bytes_when_growing() const {
    return 3 * index_.capacity() * sizeof(IndexSlot) + (chunks_.size() + 1) * kHugePageBytes + arena_bytes_;
  }

  // Calls visit(std::string_view word, uint64_t count) for each word of a part that has a count, in the order in which
  // they came.
  template <typename Visitor>
  void ForEach(size_t part, size_t parts, Visitor&& visit) const {
    for (size_t i = 0; i < size_; ++i) {
      const Entry& entry = EntryAt(i);
      if (entry.count != 0 && PartOf(HashKey(entry.key), parts) == part) visit(WordOf(entry), entry.count);
    }
  }
  template <typename Visitor>
  void ForEach(Visitor&& visit) const {
    ForEach(0, 1, visit);
  }

  // Forgets everything.
  void Clear();

 private:
  struct Entry {
    WordKey key;  // of a long word with the place in the arena
    uint64_t count;
  };
  static_assert(sizeof(Entry) == 32);
  struct IndexSlot {
    uint32_t tag = 0;  // the upper half of the word's hash; where the slot is depends on it
    uint32_t entry = kNone;
  };
  // A word on its way. Its slot of the index is asked for when it comes, its entry when it is halfway, and it is
  // counted when so many others have come that both have arrived from memory.
  struct Waiting {
    WordKey key;
    uint64_t hash = 0;
    const char* bytes = nullptr;
    size_t size = 0;         // 0: none
    uint32_t entry = kNone;  // what its tag leads to; kNone: not asked, or not there
  };

  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr size_t kWaiting = 32;
  static constexpr size_t kEntriesPerChunk = kHugePageBytes / sizeof(Entry);
  static constexpr size_t kArenaChunk = size_t{1} << 20;

  static uint32_t TagOf(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }
  static size_t PartOf(uint64_t hash, size_t parts) { return ((hash & 0xFFFFFFFF) * parts) >> 32; }
  Entry& EntryAt(size_t i) const { return chunks_[i / kEntriesPerChunk][i % kEntriesPerChunk]; }
  std::string_view ArenaWord(const WordKey& key) const;
  std::string_view WordOf(const Entry& entry) const {
    return entry.key.is_long() ? ArenaWord(entry.key) : entry.key.word();
  }
  bool Is(const Entry& entry, const WordKey& key, std::string_view word) const;
  uint32_t Find(const WordKey& key, uint64_t hash, std::string_view word) const;
  void Add(const WordKey& key, uint64_t hash, std::string_view word, uint64_t count);
  void AskForEntry(Waiting& word) const;
  void Count(const Waiting& word);
  WordKey Store(std::string_view word, uint64_t hash);
  void Grow();
  void FreeEntries();

  HugeVector<IndexSlot> index_;  // a power of two
  size_t mask_;
  std::vector<Entry*> chunks_;
  size_t size_ = 0;
  std::vector<std::unique_ptr<char[]>> arena_;  // of kArenaChunk, or of the size of one very long word
  size_t arena_used_ = kArenaChunk;             // of the last
  size_t arena_bytes_ = 0;
  std::array<Waiting, kWaiting> waiting_;  // a ring
  size_t oldest_ = 0;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_WORD_TABLE_H_
