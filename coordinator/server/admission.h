// Bounds how much work of uploads and downloads waits for the coordinator's workers. A request that would wait too long
// is refused, and its caller is told when its turn comes, so that thousands of agents which come at once stand in a
// line that takes no memory here.
//
// Heartbeats need no admission, because they are answered without a worker.
#ifndef CAIRN_COORDINATOR_SERVER_ADMISSION_H_
#define CAIRN_COORDINATOR_SERVER_ADMISSION_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace cairn {

// Reads no clock: `now` must not run backwards. Thread-safe.
class Admission {
 public:
  // Work is taken while the line before it takes at most this long, and holds at most so many bytes.
  static constexpr absl::Duration kPatience = absl::Seconds(2);
  static constexpr uint64_t kMaxBytes = uint64_t{256} << 20;
  // A caller is sent away for between these times.
  static constexpr absl::Duration kShortestDelay = absl::Milliseconds(100);
  static constexpr absl::Duration kLongestDelay = absl::Seconds(30);

  // Work that was taken. It has ended when this object ends.
  class Place {
   public:
    Place(Admission& admission, uint64_t bytes) : admission_(admission), bytes_(bytes) {}
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    // Says how long the work kept a worker.
    void Took(absl::Duration time);

   private:
    Admission& admission_;
    const uint64_t bytes_;
  };

  // `workers`: how many share the work.
  explicit Admission(int workers) : workers_(workers) {}

  // Takes work of a call that holds so many bytes. RESOURCE_EXHAUSTED (OVERLOADED), with a delay (retry_delay.h): too
  // much waits. Each refused caller gets a later turn than the one before, so that they do not come back all at once.
  absl::StatusOr<std::shared_ptr<Place>> Enter(uint64_t bytes, absl::Time now);
  // Returns how many callers were refused.
  uint64_t refused() {
    MutexLock lock(mutex_);
    return refused_;
  }

 private:
  const int workers_;
  Mutex mutex_;
  uint64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;  // taken and not ended
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // theirs
  uint64_t refused_ ABSL_GUARDED_BY(mutex_) = 0;
  // The last ones kept a worker for so long in the mean.
  absl::Duration mean_ ABSL_GUARDED_BY(mutex_) = absl::Milliseconds(1);
  absl::Time next_turn_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_ADMISSION_H_
