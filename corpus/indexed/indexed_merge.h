// Makes one dataset from many, like Megatron's tools/merge_datasets.py, without holding any index in memory.
#ifndef CAIRN_CORPUS_INDEXED_INDEXED_MERGE_H_
#define CAIRN_CORPUS_INDEXED_INDEXED_MERGE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cairn::corpus {

struct MergeReport {
  std::vector<std::string> prefixes;  // in the order of their documents
  uint64_t documents = 0;
  uint64_t sequences = 0;
  uint64_t tokens = 0;
  uint64_t kernel_bytes = 0;  // bytes of .bin that the kernel shared or copied by itself
};

// Returns the prefixes of all pairs in `directory`, which may be in an object store, sorted by code point as Python
// sorts them (so "Part" < "part10_" < "part1_"). INPUT_UNREADABLE: the directory cannot be read, or an .idx lacks its
// .bin or the reverse (all are named).
absl::StatusOr<std::vector<std::string>> ListIndexed(const std::string& directory);

// Copies a part of the .bin files of the pairs, number `number` of `of` (from 1) by bytes, to its place in `bin`, which
// is what MergeIndexed has given to a TokenCopier, and syncs it. Several parts, and one part several times, may be
// copied at the same time. Returns how many bytes. INPUT_UNREADABLE: also `bin` is not there. UNSUPPORTED: a pair is in
// an object store. Else the errors of MergeIndexed.
absl::StatusOr<uint64_t> CopyPartOfTokens(const std::vector<std::string>& prefixes, uint32_t number, uint32_t of,
                                          const std::string& bin, const std::atomic<bool>& stop);

// Lets others copy the tokens: all parts into the hidden file `bin`, which will have `bytes`.
using TokenCopier = std::function<absl::Status(const std::string& bin, uint64_t bytes)>;

// Writes all sequences and documents of the pairs one after the other to `output`. The .bin files are shared where the
// file system can, else copied inside the kernel (copy_file_range); from and to an object store they are streamed, as
// the indices always are. Neither output file gets
// its name before both are whole and synced; after an error nothing is left. Of an older pair there, .idx goes first,
// so what a kill leaves has no .idx. `stop` interrupts; `bytes_done` (may be null) counts bytes of .bin. INDEX_CORRUPT,
// INPUT_UNREADABLE: a pair is damaged. UNSUPPORTED: there is a `copier`, and an object store. BAD_REQUEST: dtypes or
// modes differ, there is no pair, or `output` is one of them or has no name. NO_SPACE, STORAGE_READ_ONLY,
// STORAGE_ERROR, FSYNC_FAILED; INTERRUPTED.
absl::StatusOr<MergeReport> MergeIndexed(const std::vector<std::string>& prefixes, const std::string& output,
                                         const std::atomic<bool>& stop, std::atomic<uint64_t>* bytes_done,
                                         const TokenCopier& copier = nullptr);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_INDEXED_INDEXED_MERGE_H_
