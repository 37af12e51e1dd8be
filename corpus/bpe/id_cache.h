// Remembers the ids of words.
#ifndef CAIRN_CORPUS_BPE_ID_CACHE_H_
#define CAIRN_CORPUS_BPE_ID_CACHE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "corpus/bpe/word_map.h"
#include "corpus/bpe/word_slots.h"

namespace cairn::corpus {

// The words that are one token each, which all threads of a tokenizer share: a new cache begins with them at no cost.
// Several threads may call Find().
class WholeWords {
 public:
  // Words of other sizes than 1 to 31 bytes are left out, and those beyond half a million.
  void Add(std::string_view word, uint32_t id) {
    const char* const end = word.data() + word.size();
    if (word.empty() || word.size() > kMiddleBytes) return;
    if (word.size() <= kShortBytes) return Add(short_, MakeShortKey(word.data(), word.size(), end), id);
    Add(middle_, MakeMiddleKey(word.data(), word.size(), end), id);
  }
  std::optional<uint32_t> Find(const ShortKey& key, uint64_t hash) const { return Find(short_, key, hash); }
  std::optional<uint32_t> Find(const MiddleKey& key, uint64_t hash) const { return Find(middle_, key, hash); }

 private:
  static constexpr size_t kMost = size_t{1} << 20;

  template <typename Slots, typename Key>
  static void Add(Slots& slots, const Key& key, uint32_t id) {
    const uint64_t hash = HashSlotKey(key);
    if (!slots.full() && slots.Find(key, hash) == nullptr) slots.Add(key, hash).ids[0] = id;
  }
  template <typename Slots, typename Key>
  static std::optional<uint32_t> Find(const Slots& slots, const Key& key, uint64_t hash) {
    const auto* slot = slots.Find(key, hash);
    if (slot == nullptr) return std::nullopt;
    return slot->ids[0];
  }

  ShortSlots short_{kMost};
  MiddleSlots middle_{kMost};
};

// Forgets everything when it has become large, so that its memory is bounded (about 100 MiB) for any text. Not
// thread-safe.
class IdCache {
 public:
  static constexpr size_t kMaxWordBytes = 255;  // longer words are rare and not kept

  // `whole` must outlive the cache.
  explicit IdCache(const WholeWords& whole) : whole_(whole) {}

  // Appends the ids of the words. Calls encode(word, word_ids) for each word that it does not know, which must append
  // the word's ids to `word_ids`; if that returns false, the rest is left out and this returns false too. Memory from
  // each word up to `limit` may be read.
  template <typename EncodeWord>
  bool Encode(std::span<const std::string_view> words, const char* limit, std::vector<uint32_t>& ids,
              EncodeWord&& encode) {
    Output output{ids, ids.size()};
    ids.resize(ids.size() + kRoom * (words.size() + 1));
    bool good = true;
    // It looks words up in batches, so that the waits for memory overlap.
    for (; good && !words.empty(); words = words.subspan(std::min(kBatch, words.size()))) {
      good = EncodeBatch(words.first(std::min(kBatch, words.size())), limit, output, encode);
    }
    ids.resize(output.size);
    return good;
  }

 private:
  static constexpr size_t kBatch = 64;
  static constexpr size_t kRoom = 4;
  static_assert(ShortSlots::kMostIds <= kRoom && MiddleSlots::kMostIds <= 2 * kRoom);
  static constexpr size_t kMostShort = size_t{1} << 20;   // slots of 32 bytes
  static constexpr size_t kMostMiddle = size_t{1} << 19;  // slots of 64 bytes
  static constexpr size_t kMaxMany = size_t{1} << 20;
  static constexpr size_t kMaxWords = size_t{1} << 18;  // of those in long_
  static constexpr size_t kMaxBytes = size_t{8} << 20;
  static constexpr int kCountBits = 8;  // a word has no more ids than bytes
  static constexpr uint64_t kCountMask = kMaxWordBytes;

  // Where ids go. There is always room for kRoom ids of each word that is left, and for kRoom more. So all ids of a
  // slot are copied, which takes no loop, and the next word's overwrite what was too much.
  struct Output {
    std::vector<uint32_t>& ids;
    size_t size;

    template <size_t most>
    void AppendSlot(const uint32_t (&from)[most], size_t count) {
      std::memcpy(ids.data() + size, from, sizeof(from));
      size += count;
      if (most > kRoom && count > kRoom) [[unlikely]]
        ids.resize(ids.size() + most - kRoom);
    }
    void Append(const uint32_t* from, size_t count) {
      ids.resize(ids.size() + count);
      std::copy_n(from, count, ids.data() + size);
      size += count;
    }
  };
  struct Asked {
    ShortKey key;
    uint64_t hash;
  };

  template <typename EncodeWord>
  bool EncodeBatch(std::span<const std::string_view> words, const char* limit, Output& output, EncodeWord&& encode) {
    std::array<Asked, kBatch> asked;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
    for (size_t i = 0; i < words.size(); ++i) {
      const std::string_view word = words[i];
      if (word.size() <= kShortBytes) [[likely]] {
        asked[i].key = MakeShortKey(word.data(), word.size(), limit);
        asked[i].hash = HashSlotKey(asked[i].key);
        short_.AskFor(asked[i].hash);
      } else if (word.size() <= kMiddleBytes) {
        asked[i].hash = HashSlotKey(MakeMiddleKey(word.data(), word.size(), limit));
        middle_.AskFor(asked[i].hash);
      }
    }
    for (size_t i = 0; i < words.size(); ++i) {
      const std::string_view word = words[i];
      bool good;
      if (word.size() <= kShortBytes) [[likely]] {
        good = EncodeIn(short_, asked[i].key, asked[i].hash, word, output, encode);
      } else if (word.size() <= kMiddleBytes) {
        good = EncodeIn(middle_, MakeMiddleKey(word.data(), word.size(), limit), asked[i].hash, word, output, encode);
      } else {
        good = EncodeLong(word, limit, output, encode);
      }
      if (!good) return false;
    }
    return true;
  }

  template <typename Slots, typename Key, typename EncodeWord>
  bool EncodeIn(Slots& slots, const Key& key, uint64_t hash, std::string_view word, Output& output,
                EncodeWord&& encode) {
    const auto* const slot = slots.Find(key, hash);
    if (slot == nullptr) [[unlikely]]
      return EncodeNew(slots, key, hash, word, output, encode);
    if (slot->count > Slots::kMostIds) [[unlikely]] {
      output.Append(many_.data() + slot->ids[0], slot->ids[1]);
    } else {
      output.AppendSlot(slot->ids, slot->count);
    }
    return true;
  }

  template <typename Slots, typename Key, typename EncodeWord>
  [[gnu::noinline]] bool EncodeNew(Slots& slots, const Key& key, uint64_t hash, std::string_view word, Output& output,
                                   EncodeWord&& encode) {
    word_ids_.clear();
    if (const std::optional<uint32_t> id = whole_.Find(key, hash)) {
      word_ids_.push_back(*id);
    } else if (!encode(word, word_ids_)) {
      return false;
    }
    output.Append(word_ids_.data(), word_ids_.size());
    if (slots.full() || many_.size() >= kMaxMany) Forget();
    auto& slot = slots.Add(key, hash);
    if (word_ids_.size() <= Slots::kMostIds && !word_ids_.empty()) {
      std::copy(word_ids_.begin(), word_ids_.end(), slot.ids);
      slot.count = static_cast<uint32_t>(word_ids_.size());
    } else {
      slot.ids[0] = static_cast<uint32_t>(many_.size());
      slot.ids[1] = static_cast<uint32_t>(word_ids_.size());
      slot.count = Slots::kElsewhere;
      many_.insert(many_.end(), word_ids_.begin(), word_ids_.end());
    }
    return true;
  }

  template <typename EncodeWord>
  bool EncodeLong(std::string_view word, const char* limit, Output& output, EncodeWord&& encode) {
    const WordKey key = MakeWordKey(word.data(), word.size(), limit);
    const uint64_t hash = HashKey(key);
    if (const uint32_t entry = long_.Find(key, hash, word); entry != WordMap::kNone) {
      const uint64_t value = long_[entry].value;
      output.Append(long_ids_.data() + (value >> kCountBits), value & kCountMask);
      return true;
    }
    word_ids_.clear();
    if (!encode(word, word_ids_)) return false;
    output.Append(word_ids_.data(), word_ids_.size());
    if (word.size() > kMaxWordBytes) return true;
    if (long_.size() >= kMaxWords || long_.arena_bytes() > kMaxBytes || long_ids_.size() > kMaxBytes / 4) Forget();
    long_.Insert(key, hash, word, uint64_t{long_ids_.size()} << kCountBits | word_ids_.size());
    long_ids_.insert(long_ids_.end(), word_ids_.begin(), word_ids_.end());
    return true;
  }

  void Forget() {
    short_.Clear();
    middle_.Clear();
    many_.clear();
    long_.Clear();
    long_ids_.clear();
  }

  const WholeWords& whole_;
  ShortSlots short_{kMostShort};
  MiddleSlots middle_{kMostMiddle};
  std::vector<uint32_t> many_;  // the ids of words with more than fit into a slot, which has their place and count
  WordMap long_;                // a value says where the word's ids begin in long_ids_, and how many there are
  std::vector<uint32_t> long_ids_;
  std::vector<uint32_t> word_ids_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_ID_CACHE_H_
