// Counts words.
#ifndef CAIRN_CORPUS_BPE_WORD_TABLE_H_
#define CAIRN_CORPUS_BPE_WORD_TABLE_H_

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "corpus/bpe/word_map.h"

namespace cairn::corpus {

// Several threads may put the words of several tables together if each does another one of `parts`. The part of a word
// depends only on the word. Nothing else is thread-safe.
class WordTable {
 public:
  // Adds 1 for each word of `text`, which the ascending `ends` cut from `begin` on. Memory up to `readable_end`, at or
  // after the end of the text, may be read. The last words wait in the table: call Flush() before the memory of the
  // text changes and before anything is asked of the table.
  void AddWords(std::string_view text, size_t begin, std::span<const uint32_t> ends, const char* readable_end);
  void Flush();
  // Adds `count` for a word that is not empty.
  void Add(std::string_view word, uint64_t count);
  // Takes over the counts of those words of a part that both tables have. In `other` these words then have no count.
  void TakeShared(size_t part, size_t parts, WordTable& other);

  // Returns the number of words that were added.
  size_t size() const { return map_.size(); }
  // Returns true if the table has as many words as it should take.
  bool full() const { return map_.size() >= WordMap::kMostWords; }
  // Returns how much memory the table will hold while it grows the next time.
  size_t bytes_when_growing() const { return map_.bytes_when_growing(); }

  // Calls visit(std::string_view word, uint64_t count) for each word of a part that has a count, in the order in which
  // the words came.
  template <typename Visitor>
  void ForEach(size_t part, size_t parts, Visitor&& visit) const {
    for (size_t i = 0; i < map_.size(); ++i) {
      const WordMap::Entry& entry = map_[i];
      if (entry.value != 0 && PartOf(HashKey(entry.key), parts) == part) visit(map_.WordOf(entry), entry.value);
    }
  }
  template <typename Visitor>
  void ForEach(Visitor&& visit) const {
    ForEach(0, 1, visit);
  }

  // Forgets everything.
  void Clear();

 private:
  // A word that waits to be counted. Its slot is fetched when it comes, its entry when it is halfway through. It is
  // counted after so many others have come that both have arrived from memory.
  struct Waiting {
    WordKey key;
    uint64_t hash = 0;
    const char* bytes = nullptr;
    size_t size = 0;  // 0: no word waits here
    uint32_t entry = WordMap::kNone;
  };
  static constexpr size_t kWaiting = 32;

  static size_t PartOf(uint64_t hash, size_t parts) { return ((hash & 0xFFFFFFFF) * parts) >> 32; }
  void Add(const WordKey& key, uint64_t hash, std::string_view word, uint64_t count);
  void Count(const Waiting& word);

  WordMap map_;
  std::array<Waiting, kWaiting> waiting_;  // a ring
  size_t oldest_ = 0;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_WORD_TABLE_H_
