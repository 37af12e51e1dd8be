// Says where the bytes of an output go. All commands that write files have one rule: links are followed to the regular
// file that they lead to, and bytes for a device or a pipe are streamed into it. A link is never replaced.
#ifndef CAIRN_CORPUS_IO_OUTPUT_PLACE_H_
#define CAIRN_CORPUS_IO_OUTPUT_PLACE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"

namespace cairn::corpus {

struct OutputPlace {
  // Where the file stands or will stand; it is no link. Of a stream, the name that was given.
  std::string path;
  bool stream = false;  // a device, a FIFO, or a descriptor of this process: it takes bytes in order, and has no end
  int descriptor = -1;  // of a stream that this process has open already ("-", /dev/stdout, /dev/fd/3), its number
  bool object = false;  // the path is an address in an object store
};

// Follows `path`; "-" is standard output. Nothing has to stand there yet. It asks nothing of an object store.
// BAD_REQUEST: it is a directory, or no address. UNSUPPORTED: it is in a kind of store that is not known.
// STORAGE_ERROR: a link leads in a circle, or cannot be read.
absl::StatusOr<OutputPlace> FindOutputPlace(const std::string& path);

// Does the same for a file that a new one will replace as a whole. BAD_REQUEST: also a stream, which cannot be
// replaced.
absl::StatusOr<OutputPlace> FindReplaceable(const std::string& path);

// Opens a stream. The open of a FIFO waits for its reader, or for a signal: then INTERRUPTED. BAD_REQUEST: it is a
// socket, or the descriptor is closed or only for reading. STORAGE_ERROR, STORAGE_READ_ONLY.
absl::StatusOr<UniqueFd> OpenStream(const OutputPlace& place);

// Refuses an output that is the very file of an input, for commands after which nobody could make the input again.
// BAD_REQUEST. Streams and files that do not stand there yet are allowed.
absl::Status CheckIsNoInput(const std::string& output, const std::string& input);

// Returns the directory for the temporary files of whoever writes `path`: the one that it stands in; of a stream or an
// object, that of TMPDIR, or /tmp.
std::string ScratchDirectoryFor(const std::string& path);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_OUTPUT_PLACE_H_
