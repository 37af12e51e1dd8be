// Makes one dataset from many, like Megatron's tools/merge_datasets.py, without holding any index in memory.
#ifndef CAIRN_CORPUS_INDEXED_INDEXED_MERGE_H_
#define CAIRN_CORPUS_INDEXED_INDEXED_MERGE_H_

#include <atomic>
#include <cstdint>
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

// Writes all sequences and documents of the pairs one after the other to `output`. The .bin files are shared where the
// file system can, else copied inside the kernel (copy_file_range); from and to an object store they are streamed, as
// the indices always are. Neither output file gets
// its name before both are whole and synced; after an error nothing is left. Of an older pair there, .idx goes first,
// so what a kill leaves has no .idx. `stop` interrupts; `bytes_done` (may be null) counts bytes of .bin. INDEX_CORRUPT,
// INPUT_UNREADABLE: a pair is damaged. BAD_REQUEST: dtypes or modes differ, there is no pair, or `output` is one of
// them or has no name. NO_SPACE, STORAGE_READ_ONLY, STORAGE_ERROR, FSYNC_FAILED; INTERRUPTED.
absl::StatusOr<MergeReport> MergeIndexed(const std::vector<std::string>& prefixes, const std::string& output,
                                         const std::atomic<bool>& stop, std::atomic<uint64_t>* bytes_done);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_INDEXED_INDEXED_MERGE_H_
