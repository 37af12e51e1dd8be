// Keeps the layouts that agents uploaded, by digest.
#ifndef CAIRN_STORE_PLAN_LAYOUT_STORE_H_
#define CAIRN_STORE_PLAN_LAYOUT_STORE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"

namespace cairn {

inline constexpr uint64_t kMaxLayoutBytes = uint64_t{64} << 20;
inline constexpr uint64_t kMaxChunkBytes = uint64_t{2} << 20;

// Keeps each layout until it is told to drop it. LayoutTable (coordinator/membership) says which are still held. All
// layouts together have at most `capacity_bytes`, and so have all uploads. Each agent has at most one upload. The
// layouts that one job has uploaded have at most `job_bytes`. Thread-safe.
class LayoutStore {
 public:
  explicit LayoutStore(uint64_t capacity_bytes) : LayoutStore(capacity_bytes, capacity_bytes) {}
  LayoutStore(uint64_t capacity_bytes, uint64_t job_bytes) : capacity_bytes_(capacity_bytes), job_bytes_(job_bytes) {}

  // Called when a layout of `job` finds no room. It drops layouts that nothing uses, those of `job` or, with
  // `all_jobs`, of any job, and returns whether it has dropped any. It is called, without a lock, until there is room
  // or it returns false. Must be set before other threads use the store.
  using MakeRoom = std::function<bool(const std::string& job, bool all_jobs)>;
  void OnFull(MakeRoom make_room) { make_room_ = std::move(make_room); }

  // Adds a chunk of `agent`'s upload and returns the offset of the next chunk; this is `total_bytes` when the layout is
  // complete. A new digest or offset 0 begins a new upload. INVALID_ARGUMENT (BAD_REQUEST): an offset that is not the
  // next one, more bytes than announced, or another digest. RESOURCE_EXHAUSTED (MESSAGE_TOO_LARGE): more than
  // kMaxLayoutBytes, a chunk above kMaxChunkBytes, or no room. `job` is the agent's.
  absl::StatusOr<uint64_t> PutChunk(const std::string& agent, const std::string& digest, uint64_t total_bytes,
                                    uint64_t offset, const std::string& chunk, const std::string& job = "");
  // Adds a whole layout. INVALID_ARGUMENT (BAD_REQUEST): the bytes have another digest. RESOURCE_EXHAUSTED
  // (MESSAGE_TOO_LARGE): no room. The bytes count for the bound of `job`; if `job` is empty, for no job's bound.
  absl::Status Put(const std::string& digest, std::string bytes, const std::string& job = "");

  // Returns null if the store does not have the layout (any more).
  std::shared_ptr<const std::string> Get(const std::string& digest);
  void Drop(const std::string& digest);
  // Drops an agent's unfinished upload.
  void Forget(const std::string& agent);
  size_t size();
  // Returns how many layouts found no room.
  uint64_t refused() const { return refused_; }

 private:
  struct Upload {
    std::string digest;
    uint64_t total_bytes = 0;
    std::string bytes;
    uint64_t used = 0;
  };

  struct Layout {
    std::shared_ptr<const std::string> bytes;
    std::string job;  // the job that uploaded it
  };

  // Returns which bound `bytes` more of `job` would break; empty if none.
  std::string BoundFor(const std::string& job, uint64_t bytes, bool& all_jobs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t capacity_bytes_;
  const uint64_t job_bytes_;
  MakeRoom make_room_;
  std::atomic<uint64_t> refused_ = 0;
  Mutex mutex_;
  std::map<std::string, Layout> layouts_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> bytes_of_job_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Upload> uploads_ ABSL_GUARDED_BY(mutex_);
  uint64_t upload_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn

#endif  // CAIRN_STORE_PLAN_LAYOUT_STORE_H_
