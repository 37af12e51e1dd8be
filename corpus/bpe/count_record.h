// Records how far a count came, so that it can be resumed.
#ifndef CAIRN_CORPUS_BPE_COUNT_RECORD_H_
#define CAIRN_CORPUS_BPE_COUNT_RECORD_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "corpus/bpe/text_blocks.h"
#include "corpus/bpe/word_runs.h"

namespace cairn::corpus {

struct CountRecord {
  std::string fingerprint;  // covers inputs and settings
  std::vector<WordRun> runs;
  BlockReader::Position position;
};

// Returns a digest of the inputs' names, sizes and times of change, and of `settings`.
std::string CountFingerprint(const std::vector<std::string>& inputs, const std::string& settings);

// Replaces the record in `directory`. Fails as WriteFileAtomically.
absl::Status SaveCountRecord(const std::string& directory, const CountRecord& record);
// Returns nothing if there is no record. DATA_LOSS (CHECKSUM_MISMATCH): the record is damaged.
absl::StatusOr<std::optional<CountRecord>> LoadCountRecord(const std::string& directory);

std::string CountRecordPath(const std::string& directory);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_COUNT_RECORD_H_
