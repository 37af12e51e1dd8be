// Measures how well tokenizers encode texts.
#ifndef CAIRN_CORPUS_PIPELINE_VOCABULARY_MEASURE_H_
#define CAIRN_CORPUS_PIPELINE_VOCABULARY_MEASURE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "corpus/bpe/line_texts.h"
#include "corpus/tokenizer/tokenizer.h"

namespace cairn::corpus {

struct NamedText {
  std::string name;
  std::vector<std::string> files;
  LineTextOptions lines;  // how the files are read
};

struct MeasureOptions {
  int threads = 1;
  const std::atomic<bool>* stop = nullptr;  // as in BlockReader::Options
  // Called by one thread at a time with the number of bytes read from files. If it returns false, the work ends with
  // CANCELLED (INTERRUPTED).
  std::function<bool(uint64_t)> progress;
};

// Counts of one text by one tokenizer. Newlines that end plain lines do not count.
struct TextMeasure {
  uint64_t bytes = 0;
  uint64_t words = 0;  // runs of characters without White_Space
  uint64_t tokens = 0;
  // By id, whether the token stands in the text.
  std::vector<bool> used;

  double bytes_per_token() const { return tokens == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(tokens); }
  double tokens_per_word() const { return words == 0 ? 0 : static_cast<double>(tokens) / static_cast<double>(words); }
};

// Encodes each line of the text by itself, or the text of each JSON object. The errors of LineTexts::ForEach; NOT_FOUND
// (INPUT_UNREADABLE), CANCELLED (INTERRUPTED), errors of the encoder.
absl::StatusOr<TextMeasure> MeasureText(const Tokenizer& tokenizer, const NamedText& text,
                                        const MeasureOptions& options);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PIPELINE_VOCABULARY_MEASURE_H_
