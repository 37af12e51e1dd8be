// Turns text into BERT's words: it cleans the text, sets ideographs apart, splits at blanks, lower-cases and strips
// accents, and isolates punctuation. This is the complete, slow path; common text never comes here (wordpiece.h).
#ifndef CAIRN_CORPUS_WORDPIECE_WORD_SPLITTER_H_
#define CAIRN_CORPUS_WORDPIECE_WORD_SPLITTER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "corpus/wordpiece/bert_chars.h"

namespace cairn::corpus {

// Holds scratch memory, so it belongs to one thread.
class WordSplitter {
 public:
  WordSplitter(BertDialect dialect, bool lower_case)
      : dialect_(dialect), lower_case_(lower_case), chars_(BertChars::Get(dialect, lower_case)) {}

  struct Word {
    size_t first, bytes;  // where it is in the normalized text
    size_t scalars;
  };

  // Returns the words of `text` (valid UTF-8) in order; they are valid until the next call. If a text is split at a
  // blank or a punctuation mark of ASCII and its parts come one by one, the words are the same. There is one exception:
  // the legacy dialect lower-cases a capital sigma by its neighbours.
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
  std::vector<std::pair<uint8_t, char32_t>> marks_;  // marks that wait for their canonical order; they are no starters
  std::string normal_;
  std::vector<Word> words_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_WORDPIECE_WORD_SPLITTER_H_
