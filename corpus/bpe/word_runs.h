// Keeps sorted runs of words with counts on disk: those that do not fit in memory. A resumed count begins with them.
#ifndef CAIRN_CORPUS_BPE_WORD_RUNS_H_
#define CAIRN_CORPUS_BPE_WORD_RUNS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"
#include "corpus/bpe/word_table.h"

namespace cairn::corpus {

// A run has records of a u32 length, a u64 count (little-endian) and the word, ascending by word, each word once.
struct WordRun {
  std::string path;
  uint64_t bytes = 0;
  uint32_t crc32c = 0;  // covers the whole file
};

// Writes a run word by word. Not thread-safe.
class RunWriter {
 public:
  // Errors of corpus/io/errno_status.h.
  static absl::StatusOr<RunWriter> Create(const std::string& path);
  // Unless Finish has succeeded, the file is removed.
  ~RunWriter();
  RunWriter(RunWriter&& other) noexcept = default;
  RunWriter& operator=(RunWriter&&) = delete;

  // Words must be added in ascending order, each once.
  absl::Status Add(std::string_view word, uint64_t count);
  // Writes the rest, and syncs the file.
  absl::StatusOr<WordRun> Finish();

 private:
  RunWriter(UniqueFd fd, const std::string& path) : fd_(std::move(fd)), run_{path, 0, 0} {}
  absl::Status Flush();

  UniqueFd fd_;  // not valid: the file is finished, or another object has it
  WordRun run_;
  std::string buffer_;
};

// Writes the table's words to `path` and syncs them. After an error (those of corpus/io/errno_status.h) the file is
// gone.
absl::StatusOr<WordRun> WriteRun(const WordTable& words, const std::string& path);

// Calls visit(word, count) for each word of the runs in ascending order, with the counts of equal words added up.
// DATA_LOSS (CHECKSUM_MISMATCH, FILE_TRUNCATED): a run is not what was written.
absl::Status MergeRuns(const std::vector<WordRun>& runs,
                       const std::function<absl::Status(std::string_view, uint64_t)>& visit);

// Replaces `path` by a file with these bytes, which is written under another name, synced, then renamed.
absl::Status WriteFileAtomically(const std::string& path, std::string_view bytes);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_WORD_RUNS_H_
