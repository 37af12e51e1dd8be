// Keeps the tokens of samples until it is decided where they stand.
#ifndef CAIRN_CORPUS_SFT_SAMPLE_FILE_H_
#define CAIRN_CORPUS_SFT_SAMPLE_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/file/unique_fd.h"

namespace cairn::corpus {

// Holds 1 MiB in memory, and the rest in a file without a name in `directory`. The kernel frees that file however the
// process ends. Not thread-safe.
class SampleFile {
 public:
  explicit SampleFile(std::string directory) : directory_(std::move(directory)) {}

  // NO_SPACE, STORAGE_READ_ONLY, STORAGE_ERROR.
  absl::Status Append(const uint32_t* tokens, size_t count);
  // Reads `tokens.size()` tokens from the place `first` on, which have been appended. STORAGE_ERROR.
  absl::Status Read(uint64_t first, std::vector<uint32_t>& tokens);

 private:
  absl::Status Spill();

  const std::string directory_;
  UniqueFd fd_;
  uint64_t spilled_ = 0;  // tokens
  std::vector<uint32_t> buffer_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SFT_SAMPLE_FILE_H_
