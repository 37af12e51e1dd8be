// The input files of a shuffle, in the order that numbers them.
#ifndef CAIRN_CORPUS_SHUFFLE_INPUT_LIST_H_
#define CAIRN_CORPUS_SHUFFLE_INPUT_LIST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "corpus/io/byte_source.h"

namespace cairn::corpus {

struct InputFile {
  std::string path;
  Compression compression = Compression::kNone;
  bool seekable = false;    // a plain regular file: can be read from any offset
  bool rereadable = false;  // a regular file: can be read again
  uint64_t size = 0;        // on disk; 0 for pipes
  int64_t modified_ns = 0;
  uint64_t data_start = 0;  // offset of the first byte behind the header lines, decompressed
};

// Each argument is a file, a pattern (`*`, `?`, `[...]`), a directory (all regular files below it but hidden ones), or
// "-". The files of a pattern or directory are sorted by name, the ending of a compression left out, so that the list,
// and with it the shuffle, stays the same when files are compressed. INPUT_UNREADABLE: nothing there, no match, no
// permission (all such arguments are named); UNSUPPORTED: too many or too large files.
absl::StatusOr<std::vector<InputFile>> ListInputs(const std::vector<std::string>& arguments);

// Reads the first `lines` lines of every file, sets each data_start, and returns those lines, which all files that have
// any byte must share; with their separators (a missing last one is added). BAD_REQUEST: two files' headers differ, or
// a header is above 1 MiB; INPUT_UNREADABLE.
absl::StatusOr<std::string> ReadHeaders(std::vector<InputFile>& inputs, uint64_t lines, char separator,
                                        const SourceOptions& options);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SHUFFLE_INPUT_LIST_H_
