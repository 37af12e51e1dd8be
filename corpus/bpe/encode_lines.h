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
  std::string input;  // "-" is standard input; the file may be gzip or Zstandard
  int threads = 1;
  size_t max_line = size_t{32} << 20;       // bytes
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

// Writes one line of ids, separated by blanks, for each line of the input without its newline. Memory is bounded: each
// thread holds a piece of 1 MiB, or of the longest line if that is more, and at most one such piece per thread waits
// for a slow writer. RESOURCE_EXHAUSTED (MEMORY_LIMIT): a line is longer than
// max_line; the message has its number. NOT_FOUND (INPUT_UNREADABLE), CANCELLED (INTERRUPTED), errors of the encoder
// and of `write`.
absl::StatusOr<EncodeLinesSummary> EncodeLines(const Tokenizer& tokenizer, const EncodeLinesOptions& options);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_ENCODE_LINES_H_
