// Applies merges to words.
#ifndef CAIRN_CORPUS_BPE_BPE_MODEL_H_
#define CAIRN_CORPUS_BPE_BPE_MODEL_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "corpus/bpe/encoded_words.h"
#include "corpus/bpe/merge_table.h"
#include "corpus/bpe/merge_words.h"
#include "corpus/bpe/short_word.h"
#include "corpus/bpe/whole_characters.h"
#include "corpus/bpe/word_cuts.h"

namespace cairn::corpus {

// Holds tokens and merges. Words are merged from their bytes, or from their characters if set_characters() was called.
// It is built once, then immutable and thread-safe.
class BpeModel {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  BpeModel();

  // If several tokens have the same bytes, the last one counts.
  void AddToken(std::string bytes, uint32_t id);
  // If a pair is given twice, the last rank counts, as in Hugging Face's model.
  void AddMerge(uint32_t left, uint32_t right, uint32_t rank, uint32_t result);
  // Makes a word that is a token stay whole, whatever the merges would make of it.
  void set_ignore_merges(bool ignore) { ignore_merges_ = ignore; }
  // Sets the id for a byte or character that is no token; without it such a one vanishes, as in Hugging Face's model.
  // With `fuse`, one id stands for several in a row.
  void set_unknown(uint32_t id, bool fuse) {
    unknown_ = id;
    fuse_unknown_ = fuse;
  }

  // Makes words be merged from their characters. Each character but a word's first is looked up with `prefix` before
  // it, and a word's last with `suffix` behind it. With `byte_fallback`, a character that is no token becomes the
  // tokens <0x00> .. <0xFF> of its bytes if all of them are tokens. Words must be valid UTF-8.
  void set_characters(std::string prefix, std::string suffix, bool byte_fallback) {
    by_character_ = true;
    prefix_ = std::move(prefix);
    suffix_ = std::move(suffix);
    byte_fallback_ = byte_fallback;
  }

  // Must be called after all tokens and merges were added, and before any of the methods below.
  void Finish();

  std::optional<uint32_t> Find(std::string_view bytes) const;

  // Calls add(word, id) for each token that, as a word, is encoded as itself. Those that others are made of by merges
  // that come earlier, or that no merges make, are not.
  template <typename Add>
  void ForEachWholeWord(Add&& add) const {
    Scratch scratch;
    EncodedWords made;
    std::vector<std::string_view> words;
    std::vector<uint32_t> ids;
    const auto add_some = [&] {
      made.clear();
      Encode(words, scratch, made);
      for (size_t i = 0, begin = 0; i < words.size(); begin = made.ends[i++]) {
        if (made.ends[i] == begin + 1 && made.ids[begin] == ids[i]) add(words[i], ids[i]);
      }
      words.clear();
      ids.clear();
    };
    for (const auto& [bytes, id] : id_of_) {
      if (bytes.empty() || bytes.size() > kMostWhole) continue;
      words.push_back(bytes);
      ids.push_back(id);
      if (words.size() == kWholeTogether) add_some();
    }
    add_some();
  }

  // Finds a piece of `word` from `from` on that can be encoded on its own (corpus/bpe/word_cuts.h), and returns its
  // end. That is the end of the word if none is known; always so if whole words or unknown bytes are treated apart.
  size_t PieceEnd(std::string_view word, size_t from) const { return cuts_.PieceEnd(word, from); }

  struct Scratch {
    struct Symbol {
      uint32_t id;
      uint32_t previous;
      uint32_t next;
    };
    struct Candidate {
      uint32_t rank;
      uint32_t at;
      uint32_t left, right, result;
    };
    static constexpr size_t kTogether = 32;  // so many words are merged by turns

    std::vector<uint32_t> ids;
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    // Not on the stack: there GCC 12's AddressSanitizer aligns nothing to 64 bytes.
    std::vector<ShortWord> short_words = std::vector<ShortWord>(kTogether);
  };

  // Appends the ids of one word. It merges the pair with the lowest rank, and the leftmost of equal ones, until no pair
  // is left.
  void Encode(std::string_view word, Scratch& scratch, std::vector<uint32_t>& ids) const;
  // Does the same for several words, which takes less time than one after the other (corpus/bpe/merge_words.h).
  void Encode(std::span<const std::string_view> words, Scratch& scratch, EncodedWords& made) const;

 private:
  struct MergeSlot {
    uint64_t pair = ~uint64_t{0};
    uint32_t rank = kNone;
    uint32_t result = kNone;
  };

  static constexpr size_t kMostWhole = 31;        // longer words are too rare to be worth the time
  static constexpr size_t kWholeTogether = 1024;  // so many are encoded together

  const MergeSlot* FindMerge(uint32_t left, uint32_t right) const;
  std::vector<absl::string_view> BytesOfIds() const;
  std::vector<MergeTable::Merge> AllMerges() const;
  void MakeTable(std::span<const MergeTable::Merge> merges);
  void FindBytePairs();
  void Mark(size_t hash);
  uint32_t IdOfCharacter(std::string_view text) const;
  // Turns a word into symbols.
  void Start(std::string_view word, std::vector<uint32_t>& ids) const;
  void StartBytes(std::string_view word, std::vector<uint32_t>& ids) const;
  void StartCharacters(std::string_view word, std::vector<uint32_t>& ids) const;
  bool CanCutCharacters(std::span<const MergeTable::Merge> merges) const;
  // Puts the symbols of a word down. Returns false if the word has too many of them, or is whole: EncodeApart() does
  // it.
  bool Begin(std::string_view word, Scratch& scratch, ShortWord& symbols) const;
  void EncodeApart(std::string_view word, Scratch& scratch, std::vector<uint32_t>& ids) const;
  void MergeLong(Scratch& scratch) const;
  void GrowMerges();

  uint32_t byte_id_[256];
  absl::flat_hash_map<std::string, uint32_t> id_of_;
  std::vector<MergeSlot> merges_;  // uses open addressing; its size is a power of two
  // One bit for each hash of a merge, sixteen bits per slot. Most pairs that are looked up do not merge, and a filter
  // of this size stays in the second-level cache.
  std::vector<uint64_t> filter_;
  MergeTable table_;  // of the same merges, for words of few symbols
  MergeWords merge_words_ = MergeWordsHere().back();
  // What table_ finds for two bytes, with which every word begins, by left << 8 | right. Empty if some byte is no
  // token.
  std::vector<uint64_t> byte_merges_;
  WholeCharacters whole_characters_;  // none if byte_merges_ is empty
  WordCuts cuts_;
  size_t merge_count_ = 0;
  bool ignore_merges_ = false;
  uint32_t unknown_ = kNone;
  bool fuse_unknown_ = false;
  bool by_character_ = false;
  bool byte_fallback_ = false;
  std::string prefix_, suffix_;
  std::vector<uint32_t> three_bytes_id_;  // of tokens that are one character of three bytes, by its code point
  std::array<uint32_t, 256> fallback_;    // the ids of <0x00> .. <0xFF>; kNone for one that is no token
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_BPE_MODEL_H_
