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

#include "corpus/bpe/encoded_words.h"
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
  // Brings what Find() will read into the processor's cache.
  void AskFor(const ShortKey&, uint64_t hash) const { short_.AskFor(hash); }
  void AskFor(const MiddleKey&, uint64_t hash) const { middle_.AskFor(hash); }
  std::optional<uint32_t> Find(const ShortKey& key, uint64_t hash) const { return Find(short_, key, hash); }
  std::optional<uint32_t> Find(const MiddleKey& key, uint64_t hash) const { return Find(middle_, key, hash); }

 private:
  static constexpr size_t kMost = size_t{1} << 20;

  template <typename Slots, typename Key>
  static void Add(Slots& slots, const Key& key, uint32_t id) {
    if (!slots.MakeRoom(1)) return;
    WordIds* const known = slots.FindOrAdd(key, HashSlotKey(key));
    if (known->count != WordIds::kNew) return;
    known->ids[0] = id;
    known->count = 1;
  }
  template <typename Slots, typename Key>
  static std::optional<uint32_t> Find(const Slots& slots, const Key& key, uint64_t hash) {
    const WordIds* const known = slots.Find(key, hash);
    if (known == nullptr) return std::nullopt;
    return known->ids[0];
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

  // Appends the ids of words. words.Next(word) gives the next one, or returns false if there is none; it is not called
  // again then. `Words` should be cheap to copy. Calls encode(words, made) with the words that it does not know, which
  // must append their ids to `made`, one word after the other; if that returns false, it could not encode the next one,
  // and the words from that on are left out and this returns false too. Memory from each word up to `limit` may be
  // read.
  template <typename Words, typename EncodeWords>
  bool Encode(Words words, const char* limit, std::vector<uint32_t>& ids, EncodeWords&& encode) {
    Output output{ids, ids.size()};
    bool more = true, good = true;
    while (more && good) {
      MakeRoom();
      size_t count = 0;
      new_count_ = 0;
      while (more && count + kAsked <= kBatch) {
        const size_t found = FindSome(words, limit, count);
        count += found;
        more = found == kAsked;
      }
      ids.resize(output.size + kRoom * (count + 1));
      good = AppendBatch(count, limit, output, encode);
    }
    ids.resize(output.size);
    return good;
  }

 private:
  static constexpr size_t kBatch = 1024;  // among so many words there are dozens of new ones, which take less together
  static constexpr size_t kAsked = 64;    // so many words are looked up together, so that the waits for memory overlap
  static constexpr size_t kRoom = WordIds::kFew + 1;
  static constexpr size_t kMostShort = size_t{1} << 20;   // slots of 32 bytes
  static constexpr size_t kMostMiddle = size_t{1} << 19;  // slots of 64 bytes
  static constexpr size_t kMaxMany = size_t{1} << 20;
  static constexpr size_t kMaxWords = size_t{1} << 18;  // of those in long_
  static constexpr size_t kMaxBytes = size_t{8} << 20;
  static constexpr int kCountBits = 8;  // a word has no more ids than bytes
  static constexpr uint64_t kCountMask = kMaxWordBytes;

  // Where ids go. There is always room for kRoom ids of each word that is left, and for kRoom more. So all of a
  // WordIds is copied, which takes no loop, and the next word's overwrite what was too much.
  struct Output {
    std::vector<uint32_t>& ids;
    size_t size;

    void Append(const WordIds& known) {
      std::memcpy(ids.data() + size, &known, sizeof(known));
      size += known.count;
    }
    void Append(const uint32_t* from, size_t count) {
      ids.resize(ids.size() + count);
      std::copy_n(from, count, ids.data() + size);
      size += count;
    }
  };
  static_assert(sizeof(WordIds) == kRoom * sizeof(uint32_t));

  struct Asked {
    const char* text;
    size_t size;
    ShortKey key;
    uint64_t hash;

    std::string_view word() const { return {text, size}; }
  };
  struct NewWord {
    std::string_view word;
    uint64_t hash;
    WordIds* known;
  };

  // Finds what is known of the next words, and writes it to known_ from `begin` on. New ones are put down as such.
  // Returns how many there are: kAsked, or fewer if no more come.
  template <typename Words>
  size_t FindSome(Words& words, const char* limit, size_t begin) {
    Asked asked[kAsked];
    size_t count = 0;
    Words source = words;  // a copy can be held in registers
    for (std::string_view word; count < kAsked && source.Next(word); ++count) {
      Asked& what = asked[count];
      what.text = word.data();
      what.size = word.size();
      if (word.size() <= kShortBytes) [[likely]] {
        what.key = MakeShortKey(word.data(), word.size(), limit);
        what.hash = HashSlotKey(what.key);
        short_.AskFor(what.hash);
      } else if (word.size() <= kMiddleBytes) {
        what.hash = HashSlotKey(MakeMiddleKey(word.data(), word.size(), limit));
        middle_.AskFor(what.hash);
      }
    }
    words = source;
    WordIds** const to = known_.data() + begin;
    for (size_t i = 0; i < count; ++i) {
      const Asked& what = asked[i];
      if (what.size <= kShortBytes) [[likely]] {
        to[i] = short_.FindOrAdd(what.key, what.hash);
        if (to[i]->count == WordIds::kNew) [[unlikely]]
          AddNew(what, what.key, to[i]);
      } else if (what.size <= kMiddleBytes) {
        const MiddleKey key = MakeMiddleKey(what.text, what.size, limit);
        to[i] = middle_.FindOrAdd(key, what.hash);
        if (to[i]->count == WordIds::kNew) [[unlikely]]
          AddNew(what, key, to[i]);
      } else {
        to[i] = nullptr;
        long_words_[begin + i] = what.word();
      }
    }
    return count;
  }

  template <typename Key>
  void AddNew(const Asked& what, const Key& key, WordIds* known) {
    known->count = WordIds::kPending;
    new_[new_count_++] = {what.word(), what.hash, known};
    whole_.AskFor(key, what.hash);
  }

  template <typename EncodeWords>
  bool AppendBatch(size_t count, const char* limit, Output& output, EncodeWords&& encode) {
    const bool all_known = new_count_ == 0 || EncodeNew(limit, encode);
    bool good = true;
    for (size_t i = 0; i < count; ++i) {
      const WordIds* const known = known_[i];
      if (known != nullptr && known->count <= WordIds::kFew) [[likely]] {
        output.Append(*known);
      } else if (known == nullptr) {
        good = EncodeLong(long_words_[i], limit, output, encode);
      } else if (known->count == WordIds::kElsewhere) {
        output.Append(many_.data() + known->ids[0], known->ids[1]);
      } else if (known->count == WordIds::kPending) {
        good = false;
      } else {
        const auto* const longer = reinterpret_cast<const LongerWordIds*>(known);
        output.Append(known->ids, WordIds::kFew);
        output.Append(longer->more, known->count - WordIds::kFew);
      }
      if (!good) break;
    }
    if (!all_known) Forget();  // there are slots without ids
    return good;
  }

  // Finds the ids of new words. Returns false if that failed for one; those from it on stay pending then.
  template <typename EncodeWords>
  [[gnu::noinline]] bool EncodeNew(const char* limit, EncodeWords&& encode) {
    unknown_.clear();
    size_t count = 0;
    for (size_t i = 0; i < new_count_; ++i) {
      const NewWord& what = new_[i];
      const size_t size = what.word.size();
      const std::optional<uint32_t> id = size <= kShortBytes
                                             ? whole_.Find(MakeShortKey(what.word.data(), size, limit), what.hash)
                                             : whole_.Find(MakeMiddleKey(what.word.data(), size, limit), what.hash);
      if (id) {
        what.known->ids[0] = *id;
        what.known->count = 1;
      } else {
        unknown_.push_back(what.word);
        new_[count++] = what;
      }
    }
    made_.clear();
    const bool good = encode(std::span<const std::string_view>(unknown_), made_);
    size_t done = 0;
    for (size_t i = 0; i < made_.ends.size(); ++i) {
      Fill(new_[i], std::span<const uint32_t>(made_.ids).subspan(done, made_.ends[i] - done));
      done = made_.ends[i];
    }
    return good;
  }

  void Fill(const NewWord& what, std::span<const uint32_t> ids) {
    WordIds& known = *what.known;
    const size_t few = std::min(ids.size(), WordIds::kFew);
    const size_t room =
        what.word.size() <= kShortBytes ? WordIds::kFew : WordIds::kFew + std::size(LongerWordIds{}.more);
    if (ids.empty() || ids.size() > room) {
      known.ids[0] = static_cast<uint32_t>(many_.size());
      known.ids[1] = static_cast<uint32_t>(ids.size());
      known.count = WordIds::kElsewhere;
      many_.insert(many_.end(), ids.begin(), ids.end());
      return;
    }
    std::copy_n(ids.begin(), few, known.ids);
    if (ids.size() > few) {
      std::copy(ids.begin() + static_cast<ptrdiff_t>(few), ids.end(), reinterpret_cast<LongerWordIds&>(known).more);
    }
    known.count = static_cast<uint32_t>(ids.size());
  }

  template <typename EncodeWords>
  bool EncodeLong(std::string_view word, const char* limit, Output& output, EncodeWords&& encode) {
    const WordKey key = MakeWordKey(word.data(), word.size(), limit);
    const uint64_t hash = HashKey(key);
    if (const uint32_t entry = long_.Find(key, hash, word); entry != WordMap::kNone) {
      const uint64_t value = long_[entry].value;
      output.Append(long_ids_.data() + (value >> kCountBits), value & kCountMask);
      return true;
    }
    made_.clear();
    if (!encode(std::span(&word, 1), made_)) return false;
    const std::vector<uint32_t>& ids = made_.ids;
    output.Append(ids.data(), ids.size());
    if (word.size() > kMaxWordBytes) return true;
    if (long_.size() >= kMaxWords || long_.arena_bytes() > kMaxBytes || long_ids_.size() > kMaxBytes / 4) ForgetLong();
    long_.Insert(key, hash, word, uint64_t{long_ids_.size()} << kCountBits | ids.size());
    long_ids_.insert(long_ids_.end(), ids.begin(), ids.end());
    return true;
  }

  // Makes sure that a batch of new words moves no slot.
  void MakeRoom() {
    if (short_.MakeRoom(kBatch) && middle_.MakeRoom(kBatch) && many_.size() < kMaxMany) return;
    Forget();
    short_.MakeRoom(kBatch);
    middle_.MakeRoom(kBatch);
  }
  void Forget() {
    short_.Clear();
    middle_.Clear();
    many_.clear();
  }
  void ForgetLong() {
    long_.Clear();
    long_ids_.clear();
  }

  const WholeWords& whole_;
  ShortSlots short_{kMostShort};
  MiddleSlots middle_{kMostMiddle};
  std::vector<uint32_t> many_;  // the ids of words with more than fit into a slot, which has their place and count
  WordMap long_;                // a value says where the word's ids begin in long_ids_, and how many there are
  std::vector<uint32_t> long_ids_;
  // These are of the batch at hand.
  std::array<WordIds*, kBatch> known_;  // null for a word that is too long for a slot
  std::array<std::string_view, kBatch> long_words_;
  std::array<NewWord, kBatch> new_;
  size_t new_count_ = 0;
  std::vector<std::string_view> unknown_;
  EncodedWords made_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_ID_CACHE_H_
