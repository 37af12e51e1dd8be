#include "corpus/bpe/word_table.h"

namespace cairn::corpus {

void WordTable::Clear() {
  map_.Clear();
  waiting_ = {};
}

void WordTable::Add(const WordKey& key, uint64_t hash, std::string_view word, uint64_t count) {
  const uint32_t known = map_.Find(key, hash, word);
  if (known == WordMap::kNone) {
    map_.Insert(key, hash, word, count);
  } else {
    map_[known].value += count;
  }
}

void WordTable::Add(std::string_view word, uint64_t count) {
  const WordKey key = MakeWordKey(word.data(), word.size(), word.data() + word.size());
  Add(key, HashKey(key), word, count);
}

inline void WordTable::Count(const Waiting& word) {
  if (word.entry != WordMap::kNone && !word.key.is_long() && map_[word.entry].key == word.key) {
    ++map_[word.entry].value;
  } else {
    Add(word.key, word.hash, {word.bytes, word.size}, 1);
  }
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
    word.entry = WordMap::kNone;
    map_.AskForSlot(word.hash);
    Waiting& halfway = waiting_[(at + kWaiting / 2) % kWaiting];
    if (halfway.size != 0) halfway.entry = map_.AskForEntry(halfway.hash);
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
  for (size_t i = 0; i < other.map_.size(); ++i) {
    WordMap::Entry& theirs = other.map_[i];
    if (theirs.value == 0) continue;
    const uint64_t hash = HashKey(theirs.key);
    if (PartOf(hash, parts) != part) continue;
    const uint32_t ours = map_.Find(theirs.key, hash, other.map_.WordOf(theirs));
    if (ours == WordMap::kNone) continue;
    map_[ours].value += theirs.value;
    theirs.value = 0;
  }
}

}  // namespace cairn::corpus
