// Decompresses gzip (RFC 1952), zstd (RFC 8878) and xz streams while they are read.
#ifndef CAIRN_CORPUS_IO_DECODER_H_
#define CAIRN_CORPUS_IO_DECODER_H_

#include <memory>
#include <string>

#include "corpus/io/byte_source.h"

namespace cairn::corpus {

// Reads one or more gzip members, as `cat a.gz b.gz` makes them. Zeros behind the last one are ignored. Checksums are
// verified. `path` is for messages.
std::unique_ptr<ByteSource> NewGzipSource(std::string path, std::unique_ptr<ByteSource> raw);

// Reads one or more zstd frames and skippable frames. MEMORY_LIMIT: the window of a frame is above `max_window` bytes.
std::unique_ptr<ByteSource> NewZstdSource(std::string path, std::unique_ptr<ByteSource> raw, size_t max_window);

// Reads one or more xz streams, with zeros between or behind them. Checksums are verified. UNSUPPORTED: this machine
// has no liblzma, or the file has a kind of checksum that it does not know. MEMORY_LIMIT: the dictionary of a block is
// above `max_window` bytes.
absl::StatusOr<std::unique_ptr<ByteSource>> NewXzSource(std::string path, std::unique_ptr<ByteSource> raw,
                                                        size_t max_window);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_DECODER_H_
