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
  // `line` stays valid until the next EndBlock.
  virtual absl::Status Line(uint64_t offset, std::string_view line) = 0;
  virtual absl::Status BeginLongLine(uint64_t offset) = 0;
  virtual absl::Status LongLinePiece(std::string_view piece) = 0;
  virtual absl::Status EndLongLine() = 0;
  // Says that the lines given so far are about to become invalid.
  virtual absl::Status EndBlock() = 0;
};

struct LineReaderOptions {
  char separator = '\n';
  uint64_t stream_offset = 0;  // where the stream's first byte is in the file
  // The first line belongs to another reader, so this one skips to behind the first separator.
  bool inside_line = false;
  uint64_t end = UINT64_MAX;    // lines that start here or later belong to another reader
  size_t long_line = 64 << 10;  // longer lines come in pieces
};

// Reads until the stream ends, or the lines that start before `end` do. A last line without separator is a line; there
// is no line behind a last separator. Fails as the prefetcher and the sink.
absl::Status ReadLines(Prefetcher& input, const LineReaderOptions& options, LineSink& sink);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SHUFFLE_LINE_READER_H_
