// Text to BERT's words: clean, set ideographs apart, split at blanks, lower-case and strip accents, isolate
// punctuation. The complete and unhurried path; what is common never comes here (wordpiece.h).
#ifndef CAIRN_CORPUS_WORDPIECE_WORD_SPLITTER_H_
#define CAIRN_CORPUS_WORDPIECE_WORD_SPLITTER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "corpus/wordpiece/bert_chars.h"

namespace cairn::corpus {

// Holds scratch: one thread's.
class WordSplitter {
 public:
  WordSplitter(BertDialect dialect, bool lower_case)
      : dialect_(dialect), lower_case_(lower_case), chars_(BertChars::Get(dialect, lower_case)) {}

  struct Word {
    size_t first, bytes;  // in the normalized text
    size_t scalars;
  };

  // The words of `text` (valid UTF-8) in order. Splitting a text at a blank or a punctuation mark of ASCII and giving
  // the parts one by one yields the same words, but where the legacy dialect lower-cases a capital sigma, whose form
  // depends on its neighbours. Valid until the next call.
  const std::vector<Word>& Split(std::string_view text);
  std::string_view TextOf(const Word& word) const { return std::string_view(normal_).substr(word.first, word.bytes); }

 private:
  void Clean(std::string_view text);
  void LowerAndStrip();
  char32_t FinalSigma(size_t i) const;
  void FlushMarks();
  void Cut(const std::u32string& text);

  const BertDialect dialect_;
  const bool lower_case_;
  const BertChars& chars_;
  std::u32string clean_, lowered_, replacement_;
  std::vector<std::pair<uint8_t, char32_t>> marks_;  // not starters, waiting for their canonical order
  std::string normal_;
  std::vector<Word> words_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_WORDPIECE_WORD_SPLITTER_H_
