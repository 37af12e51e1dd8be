// A stored file whose bytes are in memory.
#ifndef CAIRN_STORE_STORAGE_TESTING_MEMORY_FILE_H_
#define CAIRN_STORE_STORAGE_TESTING_MEMORY_FILE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/status/reason.h"
#include "store/storage/stored_file.h"

namespace cairn {

class MemoryFile : public StoredFile {
 public:
  explicit MemoryFile(std::string bytes)
      : StoredFile({"memory", bytes.size(), absl::UnixEpoch(), "memory"}, Cache::kUse), bytes_(std::move(bytes)) {}

  using StoredFile::Read;
  Way Begin(uint64_t, uint64_t) override { return Way::kCached; }
  absl::Status Read(Way, uint64_t offset, uint64_t size, char* to, bool) override {
    if (offset > bytes_.size() || size > bytes_.size() - offset) return MakeError(Reason::kFileTruncated, "it ends");
    bytes_.copy(to, size, offset);
    return absl::OkStatus();
  }

 private:
  const std::string bytes_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_STORAGE_TESTING_MEMORY_FILE_H_
