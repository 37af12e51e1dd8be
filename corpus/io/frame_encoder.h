// Compresses whole texts, each to one gzip member or one zstd frame.
#ifndef CAIRN_CORPUS_IO_FRAME_ENCODER_H_
#define CAIRN_CORPUS_IO_FRAME_ENCODER_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "corpus/io/byte_source.h"

namespace cairn::corpus {

// Compresses each of `texts` and returns the results in order. It uses up to `threads` threads, as many as the system
// grants. The bytes depend only on the text (they have no time and no name). gzip has level 6, zstd level 3 and a
// checksum. `compression` must not be kNone. MEMORY_LIMIT.
absl::StatusOr<std::vector<std::string>> EncodeFrames(Compression compression, std::span<const std::string_view> texts,
                                                      int threads);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_FRAME_ENCODER_H_
