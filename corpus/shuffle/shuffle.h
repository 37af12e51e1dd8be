// Permutes the lines of files uniformly, also if they do not fit in memory.
//
// It makes two passes over the data (Rao 1961, Sandelius 1962): each line goes to the bucket that its key names; then
// each bucket is sorted by key in memory and written. A bucket that is too large is divided again. line_key.h says why
// every order is equally likely, and why the output depends only on (inputs, seed). If everything fits in memory, or
// with `no_scratch`, it uses no temporary disk: it reads the input as often as needed, each time for the next range of
// keys.
#ifndef CAIRN_CORPUS_SHUFFLE_SHUFFLE_H_
#define CAIRN_CORPUS_SHUFFLE_SHUFFLE_H_

#include <atomic>

#include "absl/status/statusor.h"
#include "corpus/shuffle/shuffle_options.h"

namespace cairn::corpus {

// BAD_REQUEST: options contradict each other. INPUT_UNREADABLE: names every input that cannot be opened, or where
// compressed data are damaged. MEMORY_LIMIT: the memory is too small. NO_SPACE, STORAGE_READ_ONLY, STORAGE_ERROR,
// FSYNC_FAILED. CHECKSUM_MISMATCH: the lines written are not those read (a broken disk, or an input that changed
// meanwhile). INTERRUPTED: `stop` was set. After any error, nothing stands under the output's name that was not there
// before, and without `resume` no temporary file is left. `progress` may be null.
absl::StatusOr<ShuffleReport> Shuffle(const ShuffleOptions& options, const std::atomic<bool>& stop,
                                      ShuffleProgress* progress);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SHUFFLE_SHUFFLE_H_
