// Opens inputs: plain files around the page cache, objects (object_source.h), pipes, gzip, zstd, xz, tables
// (table_source.h) and tars (tar_source.h).
#ifndef CAIRN_CORPUS_IO_OPEN_SOURCE_H_
#define CAIRN_CORPUS_IO_OPEN_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "corpus/io/byte_source.h"

namespace cairn::corpus {

// Tells the compression of a file by the end of its name: .gz, .xz, or .zst and .zstd.
Compression CompressionOf(const std::string& path);

// Returns whether the end of a name says that it is a Parquet or Arrow file: .parquet, .arrow, .feather. OpenSource
// gives its rows as JSON lines.
bool IsTable(const std::string& path);

// Returns whether the end of a name says that it is a tar: .tar, perhaps with that of a compression. OpenSource gives
// its texts as JSON lines.
bool IsTar(const std::string& path);

// Returns the SourceOptions::table_readers of a command with this many threads: half as many, from 1 to 16.
int TableReadersFor(int threads);

// Returns whether OpenSource gives the bytes of a file as they are, so that a file can be read from any offset.
bool IsReadAsItIs(const std::string& path);

// Reads the bytes [begin, end of file) of a plain file or an object, as they are. From `soft_end` on it reads small
// pieces, because the caller expects to need only the rest of a line there.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenPlainSource(const std::string& path, uint64_t begin, uint64_t soft_end,
                                                            const SourceOptions& options);

// Reads the whole decompressed content of a file. "-" is standard input, which is never decompressed. INPUT_UNREADABLE:
// it cannot be opened, or standard input is closed. UNSUPPORTED: it is an .xz file, and this machine has no liblzma. Of
// a table as OpenTableSource, and of a tar as NewTarSource.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenSource(const std::string& path, const SourceOptions& options);

// Returns `source` without its first `bytes` bytes, which it reads and drops.
std::unique_ptr<ByteSource> SkipBytes(std::unique_ptr<ByteSource> source, uint64_t bytes);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_OPEN_SOURCE_H_
