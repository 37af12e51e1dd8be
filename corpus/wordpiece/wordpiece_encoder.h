// The WordPiece encoder of one thread: see wordpiece.h.
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
    size_t size;  // 0: it is the mark `id`
    uint32_t id;
    size_t place;
    PieceCache::Key key;
  };

  void Scan(std::string_view text);
  // Returns the special token that begins at text[at], as length and id; length 0 if there is none.
  PieceTrie::Match SpecialAt(std::string_view text, size_t at) const;
  // Takes a chunk, text[begin, end), which holds no blank and no punctuation mark of ASCII. Chunks and the marks
  // between them wait until there are several, so that the cache's entries come from memory at the same time. Then
  // Flush() encodes them.
  void Chunk(std::string_view text, size_t begin, size_t end);
  void Mark(std::string_view text, uint32_t id);
  void Flush(std::string_view text);
  // Encodes a chunk that is not in the cache. It cuts the chunk where characters beyond ASCII end words, because the
  // parts may be in the cache.
  void Parts(std::string_view chunk);
  void PartOrCached(std::string_view part);
  // Normalizes, splits and cuts the part, and appends the ids to slow_ids_.
  void Slow(std::string_view part);
  void PutSlow();

  const WordPieceTokenizer& tokenizer_;
  const BertChars& chars_;
  WordSplitter splitter_;
  PieceCache cache_;
  Pending pending_[kPending];
  size_t pending_count_ = 0;
  // The ids of the current call. There is always room for one id per byte not yet read, and for one cache line more.
  std::vector<uint32_t> out_;
  size_t count_ = 0;
  size_t unread_ = 0;
  std::vector<uint32_t> slow_ids_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_WORDPIECE_WORDPIECE_ENCODER_H_
