// Cuts a text into sentences.
#ifndef CAIRN_CORPUS_PREPROCESS_SENTENCE_SPLITTER_H_
#define CAIRN_CORPUS_PREPROCESS_SENTENCE_SPLITTER_H_

#include <string_view>
#include <vector>

namespace cairn::corpus {

// Belongs to one thread, because it may hold scratch memory. Not thread-safe.
class SentenceSplitter {
 public:
  virtual ~SentenceSplitter() = default;

  // Appends the sentences of `text` (valid UTF-8) in order, as parts of it.
  virtual void Split(std::string_view text, std::vector<std::string_view>& sentences) = 0;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PREPROCESS_SENTENCE_SPLITTER_H_
