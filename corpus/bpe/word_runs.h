// Sorted runs of words with counts on disk. They hold what does not fit in memory, and a resumed count begins with
// them.
#ifndef CAIRN_CORPUS_BPE_WORD_RUNS_H_
#define CAIRN_CORPUS_BPE_WORD_RUNS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "corpus/bpe/word_table.h"

namespace cairn::corpus {

// A run: records of u32 length, u64 count (little-endian) and the word, ascending by word, each word once.
struct WordRun {
  std::string path;
  uint64_t bytes = 0;
  uint32_t crc32c = 0;  // of the whole file
};

// Writes the table's words to `path` and syncs them.
// The errors of corpus/io/errno_status.h: the file could not be written; it is gone.
absl::StatusOr<WordRun> WriteRun(const WordTable& words, const std::string& path);

// Calls visit(word, count) for each word of the runs in ascending order, equal words added up.
// DATA_LOSS (CHECKSUM_MISMATCH, FILE_TRUNCATED): a run is not what was written.
absl::Status MergeRuns(const std::vector<WordRun>& runs,
                       const std::function<absl::Status(std::string_view, uint64_t)>& visit);

// Replaces `path` by a file with these bytes: written under another name, synced, then renamed.
absl::Status WriteFileAtomically(const std::string& path, std::string_view bytes);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_WORD_RUNS_H_
