// Applies merges to words.
#ifndef CAIRN_CORPUS_BPE_BPE_MODEL_H_
#define CAIRN_CORPUS_BPE_BPE_MODEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace cairn::corpus {

// Tokens and merges of a byte-level vocabulary. Built once, then immutable and thread-safe.
class BpeModel {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  BpeModel();

  // If several tokens have equal bytes, the last one counts.
  void AddToken(std::string bytes, uint32_t id);
  // If a pair is given twice, the last rank counts, as in Hugging Face's model.
  void AddMerge(uint32_t left, uint32_t right, uint32_t rank, uint32_t result);
  // A word that is a token stays whole, whatever the merges would make of it.
  void set_ignore_merges(bool ignore) { ignore_merges_ = ignore; }
  // Stands for a byte that is no token; without it such a byte vanishes, as in Hugging Face's model. With `fuse` one
  // stands for several bytes in a row.
  void set_unknown(uint32_t id, bool fuse) {
    unknown_ = id;
    fuse_unknown_ = fuse;
  }

  // Must be called when all tokens and merges are there, before any of the methods below.
  void Finish();

  std::optional<uint32_t> Find(std::string_view bytes) const;

  // Finds the longest piece of `word` from `from` on that no merge can join with what follows, and returns its end.
  // Both sides can then be encoded on their own. If no such place is known, it returns the end of the word. That is
  // always so if whole words or unknown bytes are treated apart.
  // Looks at places between characters beyond ASCII only: scripts without blanks, whose "words" are whole sentences.
  size_t PieceEnd(std::string_view word, size_t from) const;

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
    std::vector<uint32_t> ids;
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // Appends the ids of one word: the pair of the lowest rank merges, the leftmost of equal ones, until none is left.
  void Encode(std::string_view word, Scratch& scratch, std::vector<uint32_t>& ids) const;

 private:
  struct MergeSlot {
    uint64_t pair = ~uint64_t{0};
    uint32_t rank = kNone;
    uint32_t result = kNone;
  };

  const MergeSlot* FindMerge(uint32_t left, uint32_t right) const;
  void FindBytePairs();
  void FindJoints();
  bool CanJoin(const uint8_t* place) const;
  void Mark(size_t hash);
  void Start(std::string_view word, std::vector<uint32_t>& ids) const;
  void MergeShort(std::string_view word, Scratch& scratch) const;
  void MergeLong(Scratch& scratch) const;
  void GrowMerges();

  uint32_t byte_id_[256];
  absl::flat_hash_map<std::string, uint32_t> id_of_;
  std::vector<MergeSlot> merges_;  // open addressing, a power of two
  // A bit for each hash of a merge, sixteen bits per slot: of the pairs that are asked for most do not merge, and this
  // much stays in the second-level cache.
  std::vector<uint64_t> filter_;
  // By left << 8 | right: what pairs of bytes, which every word begins with, merge to. Empty if some byte is no token.
  struct ByteMerge {
    uint32_t rank = kNone;
    uint32_t result = kNone;
  };
  std::vector<ByteMerge> byte_merges_;
  // A bit for each hash of the up to three bytes on either side of the place where a merge joins two tokens, and the
  // combinations of lengths that occur.
  std::vector<uint64_t> joints_;
  uint32_t joint_shapes_ = 0;
  size_t merge_count_ = 0;
  bool ignore_merges_ = false;
  uint32_t unknown_ = kNone;
  bool fuse_unknown_ = false;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_BPE_MODEL_H_
