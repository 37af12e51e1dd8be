// Says how an output of text is compressed. All readers go by the end of a file's name, so it must say what was
// written.
#ifndef CAIRN_CORPUS_IO_OUTPUT_COMPRESSION_H_
#define CAIRN_CORPUS_IO_OUTPUT_COMPRESSION_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "corpus/io/byte_source.h"

namespace cairn::corpus {

// Returns what the end of the name `path` says: .gz, .zst and .zstd, otherwise no compression. A name without an
// ending, as "-" and /dev/stdout, leaves it to `asked`, the value of --compress. BAD_REQUEST: the ending is that of a
// format that is not written, as .xz and .parquet, or not that of `asked`.
absl::StatusOr<Compression> CompressionForOutput(const std::string& path, std::optional<Compression> asked);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_OUTPUT_COMPRESSION_H_
