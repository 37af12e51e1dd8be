// Encodes a file line by line on several threads, in order.
#ifndef CAIRN_CORPUS_BPE_ENCODE_LINES_H_
#define CAIRN_CORPUS_BPE_ENCODE_LINES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "corpus/bpe/line_texts.h"
#include "corpus/tokenizer/tokenizer.h"

namespace cairn::corpus {

struct EncodeLinesOptions {
  std::string input;  // "-" is standard input
  LineTextOptions lines;
  int threads = 1;
  const std::atomic<bool>* stop = nullptr;  // as in BlockReader::Options
  // Takes a piece of the output; pieces come in order. An error ends the work.
  std::function<absl::Status(std::string_view)> write;
  // Called by one thread at a time with the number of bytes read from the file. If it returns false, the work ends with
  // CANCELLED (INTERRUPTED).
  std::function<bool(uint64_t)> progress;
};

struct EncodeLinesSummary {
  uint64_t lines = 0;
  uint64_t tokens = 0;
  uint64_t bytes = 0;  // bytes of text
};

// Writes one line of ids, separated by blanks, for each line of the input: of the line without its newline, or of the
// whole text of a JSON object, which may have newlines itself. Memory is bounded: each
// thread holds a piece of 1 MiB, or of the longest line if that is more, and at most one such piece per thread waits
// for a slow writer. The errors of LineTexts::ForEach; NOT_FOUND (INPUT_UNREADABLE), CANCELLED (INTERRUPTED), errors of
// the encoder and of `write`.
absl::StatusOr<EncodeLinesSummary> EncodeLines(const Tokenizer& tokenizer, const EncodeLinesOptions& options);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_ENCODE_LINES_H_
