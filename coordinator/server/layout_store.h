// The layouts that agents uploaded, by digest.
#ifndef CAIRN_COORDINATOR_SERVER_LAYOUT_STORE_H_
#define CAIRN_COORDINATOR_SERVER_LAYOUT_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"

namespace cairn {

inline constexpr uint64_t kMaxLayoutBytes = uint64_t{64} << 20;
inline constexpr uint64_t kMaxChunkBytes = uint64_t{2} << 20;

// Keeps each layout until it is told to drop it. LayoutTable (coordinator/membership) says which are still held.
// Layouts and uploads are bounded by `capacity_bytes` each, uploads also by one per agent. Thread-safe.
class LayoutStore {
 public:
  explicit LayoutStore(uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  // Adds a chunk of `agent`'s upload (a new digest or offset 0 starts it anew) and returns where the next one begins;
  // the whole length when the layout is there. INVALID_ARGUMENT (BAD_REQUEST): an offset that is not the next one, more
  // bytes than announced, or another digest. RESOURCE_EXHAUSTED (MESSAGE_TOO_LARGE): more than kMaxLayoutBytes, a chunk
  // above kMaxChunkBytes, or no room.
  absl::StatusOr<uint64_t> PutChunk(const std::string& agent, const std::string& digest, uint64_t total_bytes,
                                    uint64_t offset, const std::string& chunk);
  // A whole layout. INVALID_ARGUMENT (BAD_REQUEST): the bytes have another digest. RESOURCE_EXHAUSTED
  // (MESSAGE_TOO_LARGE): no room.
  absl::Status Put(const std::string& digest, std::string bytes);

  // Returns null if the layout is not there (any more).
  std::shared_ptr<const std::string> Get(const std::string& digest);
  void Drop(const std::string& digest);
  // Drops an agent's unfinished upload.
  void Forget(const std::string& agent);
  size_t size();

 private:
  struct Upload {
    std::string digest;
    uint64_t total_bytes = 0;
    std::string bytes;
    uint64_t used = 0;
  };

  const uint64_t capacity_bytes_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<const std::string>> layouts_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Upload> uploads_ ABSL_GUARDED_BY(mutex_);
  uint64_t upload_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_LAYOUT_STORE_H_
