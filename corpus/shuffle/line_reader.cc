#include "corpus/shuffle/line_reader.h"

#include <cstring>

#include "common/status/status.h"

namespace cairn::corpus {

absl::Status ReadLines(Prefetcher& input, const LineReaderOptions& options, LineSink& sink) {
  // Says what the bytes at the start of a block belong to.
  enum class Open { kNothing, kSkipped, kCarried, kLong };
  Open open = options.inside_line ? Open::kSkipped : Open::kNothing;
  std::string carried;  // the begin of a line that the last block cut
  uint64_t carried_offset = 0;
  uint64_t block_offset = options.stream_offset;

  while (true) {
    CAIRN_ASSIGN_OR_RETURN(const std::string_view block, input.Next());
    if (block.empty()) break;
    size_t start = 0;
    bool carried_given = false;
    while (start < block.size()) {
      if (open == Open::kNothing && block_offset + start >= options.end) return sink.EndBlock();
      const void* found = std::memchr(block.data() + start, options.separator, block.size() - start);
      const size_t stop =
          found == nullptr ? block.size() : static_cast<size_t>(static_cast<const char*>(found) - block.data());
      const std::string_view piece = block.substr(start, stop - start);
      const bool whole = found != nullptr;
      switch (open) {
        case Open::kNothing:
          if (piece.size() > options.long_line) {
            CAIRN_RETURN_IF_ERROR(sink.BeginLongLine(block_offset + start));
            CAIRN_RETURN_IF_ERROR(sink.LongLinePiece(piece));
            if (whole) CAIRN_RETURN_IF_ERROR(sink.EndLongLine());
            if (!whole) open = Open::kLong;
          } else if (whole) {
            CAIRN_RETURN_IF_ERROR(sink.Line(block_offset + start, piece));
          } else {
            carried.assign(piece);
            carried_offset = block_offset + start;
            open = Open::kCarried;
          }
          break;
        case Open::kSkipped:
          if (whole) open = Open::kNothing;
          break;
        case Open::kCarried:
          if (carried.size() + piece.size() > options.long_line) {
            CAIRN_RETURN_IF_ERROR(sink.BeginLongLine(carried_offset));
            CAIRN_RETURN_IF_ERROR(sink.LongLinePiece(carried));
            CAIRN_RETURN_IF_ERROR(sink.LongLinePiece(piece));
            if (whole) CAIRN_RETURN_IF_ERROR(sink.EndLongLine());
            open = whole ? Open::kNothing : Open::kLong;
            break;
          }
          carried.append(piece);
          if (whole) {
            CAIRN_RETURN_IF_ERROR(sink.Line(carried_offset, carried));
            open = Open::kNothing;
            carried_given = true;
          }
          break;
        case Open::kLong:
          CAIRN_RETURN_IF_ERROR(sink.LongLinePiece(piece));
          if (whole) {
            CAIRN_RETURN_IF_ERROR(sink.EndLongLine());
            open = Open::kNothing;
          }
          break;
      }
      if (carried_given) {
        // `carried` may be needed again for the end of this block.
        CAIRN_RETURN_IF_ERROR(sink.EndBlock());
        carried_given = false;
      }
      start = stop + 1;
    }
    block_offset += block.size();
    CAIRN_RETURN_IF_ERROR(sink.EndBlock());
    if (open == Open::kSkipped && block_offset >= options.end) return absl::OkStatus();
  }
  if (open == Open::kCarried) CAIRN_RETURN_IF_ERROR(sink.Line(carried_offset, carried));
  if (open == Open::kLong) CAIRN_RETURN_IF_ERROR(sink.EndLongLine());
  return sink.EndBlock();
}

}  // namespace cairn::corpus
