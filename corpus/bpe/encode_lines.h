// Encodes a file line by line on several threads, in order.
#ifndef CAIRN_CORPUS_BPE_ENCODE_LINES_H_
#define CAIRN_CORPUS_BPE_ENCODE_LINES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "corpus/tokenizer/tokenizer.h"

namespace cairn::corpus {

struct EncodeLinesOptions {
  std::string input;  // "-": standard input; may be gzip or Zstandard
  int threads = 1;
  const std::atomic<bool>* stop = nullptr;  // as in BlockReader::Options
  // Takes a piece of the output, in order; an error ends the work.
  std::function<absl::Status(std::string_view)> write;
  // Called with the bytes of the file read; false ends with CANCELLED (INTERRUPTED). One thread at a time.
  std::function<bool(uint64_t)> progress;
};

struct EncodeLinesSummary {
  uint64_t lines = 0;
  uint64_t tokens = 0;
  uint64_t bytes = 0;  // of text
};

// For each line of the input, without its newline, writes one line of ids separated by blanks. Each thread holds a
// piece of the longest line or of 1 MiB, whichever is more, and at most one such piece per thread waits for a slow
// writer. So memory is bounded. NOT_FOUND (INPUT_UNREADABLE), CANCELLED (INTERRUPTED), errors of the encoder and of
// `write`.
absl::StatusOr<EncodeLinesSummary> EncodeLines(const Tokenizer& tokenizer, const EncodeLinesOptions& options);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_ENCODE_LINES_H_
