// The layouts that agents uploaded, by digest.
#ifndef CAIRN_COORDINATOR_SERVER_LAYOUT_STORE_H_
#define CAIRN_COORDINATOR_SERVER_LAYOUT_STORE_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"

namespace cairn {

inline constexpr uint64_t kMaxLayoutBytes = uint64_t{64} << 20;
inline constexpr uint64_t kMaxChunkBytes = uint64_t{2} << 20;

// Bounded: finished layouts by `capacity_bytes`, of which those not used for longest go first; uploads by one per agent
// and the same number of bytes in all. Thread-safe.
class LayoutStore {
 public:
  explicit LayoutStore(uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  // Adds a chunk of `agent`'s upload (a new digest or offset 0 starts it anew) and returns where the next one begins;
  // the whole length when the layout is there. INVALID_ARGUMENT (BAD_REQUEST): an offset that is not the next one, more
  // bytes than announced, or another digest. RESOURCE_EXHAUSTED (MESSAGE_TOO_LARGE): more than kMaxLayoutBytes, a chunk
  // above kMaxChunkBytes, or no room.
  absl::StatusOr<uint64_t> PutChunk(const std::string& agent, const std::string& digest, uint64_t total_bytes,
                                    uint64_t offset, const std::string& chunk);
  // A whole layout. INVALID_ARGUMENT (BAD_REQUEST): the bytes have another digest.
  absl::Status Put(const std::string& digest, std::string bytes);

  // Null if it is not there (any more).
  std::shared_ptr<const std::string> Get(const std::string& digest);
  // Drops an agent's unfinished upload.
  void Forget(const std::string& agent);
  // Digests that were dropped for lack of room since the last call.
  std::vector<std::string> TakeEvicted();

 private:
  struct Entry {
    std::string digest;
    std::shared_ptr<const std::string> bytes;
  };
  struct Upload {
    std::string digest;
    uint64_t total_bytes = 0;
    std::string bytes;
  };

  void Insert(const std::string& digest, std::string bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t capacity_bytes_;
  Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // used last first
  std::map<std::string, std::list<Entry>::iterator> index_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Upload> uploads_ ABSL_GUARDED_BY(mutex_);
  uint64_t upload_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> evicted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_LAYOUT_STORE_H_
