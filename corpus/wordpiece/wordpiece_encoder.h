// One thread's WordPiece encoder: see wordpiece.h.
#ifndef CAIRN_CORPUS_WORDPIECE_WORDPIECE_ENCODER_H_
#define CAIRN_CORPUS_WORDPIECE_WORDPIECE_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "corpus/tokenizer/tokenizer.h"
#include "corpus/wordpiece/piece_cache.h"
#include "corpus/wordpiece/word_splitter.h"
#include "corpus/wordpiece/wordpiece.h"

namespace cairn::corpus {

class WordPieceEncoder final : public Encoder {
 public:
  explicit WordPieceEncoder(const WordPieceTokenizer& tokenizer);

  absl::Status Encode(std::string_view text, std::vector<uint32_t>& ids) override;

 private:
  static constexpr size_t kPending = 32;
  struct Pending {
    size_t begin;
    size_t size;  // 0: the mark `id`
    uint32_t id;
    size_t place;
    PieceCache::Key key;
  };

  void Scan(std::string_view text);
  // The special token that begins at text[at], as length and id; length 0 for none.
  PieceTrie::Match SpecialAt(std::string_view text, size_t at) const;
  // A chunk, text[begin, end), holds no blank and no punctuation mark of ASCII. Chunks and the marks between them wait
  // until several are there, so that the cache's entries come from memory at the same time; then Flush() answers.
  void Chunk(std::string_view text, size_t begin, size_t end);
  void Mark(std::string_view text, uint32_t id);
  void Flush(std::string_view text);
  // A chunk that is not in the cache: cut where characters beyond ASCII end words, so that the parts can be.
  void Parts(std::string_view chunk);
  void PartOrCached(std::string_view part);
  // Normalizes, splits, cuts; appends the ids to slow_ids_.
  void Slow(std::string_view part);
  void PutSlow();

  const WordPieceTokenizer& tokenizer_;
  const BertChars& chars_;
  WordSplitter splitter_;
  PieceCache cache_;
  Pending pending_[kPending];
  size_t pending_count_ = 0;
  // Ids of the running call. Room for one id per byte not yet read and a cache line's worth is always there.
  std::vector<uint32_t> out_;
  size_t count_ = 0;
  size_t unread_ = 0;
  std::vector<uint32_t> slow_ids_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_WORDPIECE_WORDPIECE_ENCODER_H_
