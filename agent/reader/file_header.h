// The header of a file that a load reads, with the checksums of its items' blocks.
#ifndef CAIRN_AGENT_READER_FILE_HEADER_H_
#define CAIRN_AGENT_READER_FILE_HEADER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/plan.pb.h"
#include "common/base/mutex.h"
#include "common/format/safetensors_header.h"

namespace cairn {

// Thread-safe.
class FileHeader {
 public:
  // `plan` must outlive it. `path` is for messages.
  FileHeader(const v1::ReadFile& plan, std::string path) : plan_(plan), path_(std::move(path)) {}

  // Takes the header's bytes. DATA_LOSS (CHECKSUM_MISMATCH): their checksum differs from the manifest's.
  absl::Status Take(std::string bytes);
  // Returns the checksums of an item of the plan. Take must have been called. DATA_LOSS (BAD_SAFETENSORS): the header
  // cannot be read, or has an item elsewhere than the manifest.
  absl::StatusOr<const ItemChecksums*> Checksums(size_t item);
  // Returns CHECKSUM_MISMATCH for bytes of the item at `offset` of the file.
  absl::Status Mismatch(size_t item, uint64_t offset, uint32_t found, uint32_t expected) const;

 private:
  absl::Status Parse(const std::string& bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const v1::ReadFile& plan_;
  const std::string path_;
  Mutex mutex_;
  // Dropped when it is parsed, which is when a part of an item is first verified.
  std::string bytes_ ABSL_GUARDED_BY(mutex_);
  bool parsed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::vector<ItemChecksums> checksums_ ABSL_GUARDED_BY(mutex_);  // for each item of the plan; set once
};

}  // namespace cairn

#endif  // CAIRN_AGENT_READER_FILE_HEADER_H_
