// Whole texts as one gzip member or one zstd frame each.
#ifndef CAIRN_CORPUS_IO_FRAME_ENCODER_H_
#define CAIRN_CORPUS_IO_FRAME_ENCODER_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "corpus/io/byte_source.h"

namespace cairn::corpus {

// Each of `texts` compressed, in order, on up to `threads` threads; the bytes depend on the text alone (no time, no
// name). gzip at level 6, zstd at level 3 with a checksum. `compression` is not kNone.
std::vector<std::string> EncodeFrames(Compression compression, std::span<const std::string_view> texts, int threads);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_FRAME_ENCODER_H_
