// Cuts a stream of bytes into lines, whatever their length.
#ifndef CAIRN_CORPUS_SHUFFLE_LINE_READER_H_
#define CAIRN_CORPUS_SHUFFLE_LINE_READER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "corpus/io/prefetcher.h"

namespace cairn::corpus {

// Receives lines without their separators. A line above the reader's limit comes in pieces.
class LineSink {
 public:
  virtual ~LineSink() = default;
  // `line` stays until the next EndBlock.
  virtual absl::Status Line(uint64_t offset, std::string_view line) = 0;
  virtual absl::Status BeginLongLine(uint64_t offset) = 0;
  virtual absl::Status LongLinePiece(std::string_view piece) = 0;
  virtual absl::Status EndLongLine() = 0;
  // The lines given so far are about to vanish.
  virtual absl::Status EndBlock() = 0;
};

struct LineReaderOptions {
  char separator = '\n';
  uint64_t stream_offset = 0;   // of the stream's first byte in the file
  bool inside_line = false;     // the first line is another reader's: skip to behind the first separator
  uint64_t end = UINT64_MAX;    // lines that start here or later are another reader's
  size_t long_line = 64 << 10;  // longer lines come in pieces
};

// Reads until the end of the stream or of the lines that start before `end`. A last line without separator is a line;
// nothing behind a last separator is none. The prefetcher's and the sink's errors.
absl::Status ReadLines(Prefetcher& input, const LineReaderOptions& options, LineSink& sink);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SHUFFLE_LINE_READER_H_
