// gzip (RFC 1952) and zstd (RFC 8878) streams, decompressed as they are read.
#ifndef CAIRN_CORPUS_IO_DECODER_H_
#define CAIRN_CORPUS_IO_DECODER_H_

#include <memory>
#include <string>

#include "corpus/io/byte_source.h"

namespace cairn::corpus {

// One or more gzip members, as of `cat a.gz b.gz`; zeros after the last are padding. Checksums are verified. `path` is
// for messages.
std::unique_ptr<ByteSource> NewGzipSource(std::string path, std::unique_ptr<ByteSource> raw);

// One or more zstd frames and skippable frames. A frame with a window above `max_window` bytes is MEMORY_LIMIT.
std::unique_ptr<ByteSource> NewZstdSource(std::string path, std::unique_ptr<ByteSource> raw, size_t max_window);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_DECODER_H_
