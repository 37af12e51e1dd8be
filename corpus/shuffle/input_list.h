// Lists the input files of a shuffle. Their order gives them their numbers.
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
  bool seekable = false;    // a plain regular file or object, which can be read from any offset
  bool rereadable = false;  // a regular file or object, which can be read again
  bool object = false;      // it is in an object store
  uint64_t size = 0;        // on disk; 0 for pipes
  int64_t modified_ns = 0;
  std::string identity;     // of an object: differs from that of every other one
  uint64_t data_start = 0;  // decompressed offset of the first byte behind the header lines
};

// Each argument is a file, a pattern (`*`, `?`, `[...]`), a directory (all regular files below it except hidden ones),
// or "-"; files, patterns and directories may also be in an object store (object_inputs.h). The files of a pattern or
// directory are sorted by name without the ending of a compression, so that the list, and with it the shuffle, stays
// the same when files are compressed. INPUT_UNREADABLE: nothing is there, nothing matches, or there is no permission
// (all such arguments are named). UNSUPPORTED: there are too many files, or too large ones. Else the errors of
// ObjectStores.
absl::StatusOr<std::vector<InputFile>> ListInputs(const std::vector<std::string>& arguments);

// BAD_REQUEST: columns are asked for, but none of the inputs is a table.
absl::Status CheckColumns(const std::vector<InputFile>& inputs, const std::vector<std::string>& columns);

// Reads the first `lines` lines of every file, sets each data_start, and returns these lines with their separators (it
// adds one that is missing at the end). All files that are not empty must share them. BAD_REQUEST: two files' headers
// differ, or a header is above 1 MiB. INPUT_UNREADABLE.
absl::StatusOr<std::string> ReadHeaders(std::vector<InputFile>& inputs, uint64_t lines, char separator,
                                        const SourceOptions& options);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SHUFFLE_INPUT_LIST_H_
