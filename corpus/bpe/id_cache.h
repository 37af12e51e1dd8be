// Remembers the ids of words.
#ifndef CAIRN_CORPUS_BPE_ID_CACHE_H_
#define CAIRN_CORPUS_BPE_ID_CACHE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "corpus/bpe/word_map.h"

namespace cairn::corpus {

// Forgets everything when it has become large, so that its memory is bounded (about 100 MiB) for any text. Not
// thread-safe.
class IdCache {
 public:
  static constexpr size_t kMaxWordBytes = 255;  // longer words are rare and not kept

  // Appends the ids of the words. Calls encode(word) for each word that it does not know, which must append the word's
  // ids to `ids`; if that returns false, the rest is left out and this returns false too. Memory from each word up to
  // `limit` may be read.
  template <typename EncodeWord>
  bool Encode(std::span<const std::string_view> words, const char* limit, std::vector<uint32_t>& ids,
              EncodeWord&& encode) {
    // It looks words up in batches, so that the waits for memory overlap.
    WordKey keys[kBatch];
    uint64_t hashes[kBatch];
    uint32_t entries[kBatch];
    for (; !words.empty(); words = words.subspan(std::min(kBatch, words.size()))) {
      const size_t count = std::min(kBatch, words.size());
      for (size_t i = 0; i < count; ++i) {
        keys[i] = MakeWordKey(words[i].data(), words[i].size(), limit);
        hashes[i] = HashKey(keys[i]);
        map_.AskForSlot(hashes[i]);
      }
      for (size_t i = 0; i < count; ++i) entries[i] = map_.AskForEntry(hashes[i]);
      for (size_t i = 0; i < count; ++i) {
        if (Find(keys[i], hashes[i], words[i], entries[i], ids)) continue;
        const size_t old = ids.size();
        if (!encode(words[i])) return false;
        Add(keys[i], hashes[i], words[i], ids.data() + old, ids.size() - old);
      }
    }
    return true;
  }

 private:
  static constexpr size_t kBatch = 32;
  static constexpr size_t kMaxWords = size_t{1} << 20;
  static constexpr size_t kMaxBytes = size_t{24} << 20;
  static constexpr size_t kFew = 4;
  static constexpr int kCountBits = 8;  // a word has no more ids than bytes
  static constexpr uint64_t kCountMask = kMaxWordBytes;

  // If the word is known, appends its ids and returns true. `asked` is what the map's AskForEntry() returned.
  bool Find(const WordKey& key, uint64_t hash, std::string_view word, uint32_t asked,
            std::vector<uint32_t>& ids) const {
    // The entry may have been forgotten since.
    if (asked >= map_.size() || !map_.Is(map_[asked], key, word)) asked = map_.Find(key, hash, word);
    if (asked == WordMap::kNone) return false;
    const uint64_t value = map_[asked].value;
    const uint32_t* const known = ids_.data() + (value >> kCountBits);
    const size_t count = value & kCountMask;
    const size_t size = ids.size();
    ids.resize(size + std::max(count, kFew));
    if (count <= kFew) {
      std::memcpy(ids.data() + size, known, kFew * sizeof(uint32_t));  // a fixed size needs no call and no loop
    } else {
      std::copy_n(known, count, ids.data() + size);
    }
    ids.resize(size + count);
    return true;
  }

  // The word must not be known already.
  void Add(const WordKey& key, uint64_t hash, std::string_view word, const uint32_t* ids, size_t count) {
    if (word.size() > kMaxWordBytes) return;
    if (map_.size() >= kMaxWords || map_.arena_bytes() > kMaxBytes || ids_.size() > kMaxBytes / sizeof(uint32_t)) {
      map_.Clear();
      ids_.assign(kFew, 0);
    }
    const size_t begin = ids_.size() - kFew;
    map_.Insert(key, hash, word, uint64_t{begin} << kCountBits | count);
    ids_.resize(ids_.size() + count);
    std::copy_n(ids, count, ids_.data() + begin);
  }

  WordMap map_;  // a value says where the word's ids begin in ids_, and how many there are
  std::vector<uint32_t> ids_ = std::vector<uint32_t>(kFew);  // always ends with room for a read of kFew
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_ID_CACHE_H_
