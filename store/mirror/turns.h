// Lets one at a time do something to a thing that has a name, such as a job: a mutex for each name, which one can wait
// for with patience.
#ifndef CAIRN_STORE_MIRROR_TURNS_H_
#define CAIRN_STORE_MIRROR_TURNS_H_

#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace cairn {

// Thread-safe.
class Turns {
 public:
  explicit Turns(const Clock& clock) : clock_(clock) {}
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  class Turn {
   public:
    // Waits until nobody else has the turn of that name, for `patience` at most. `turns` must outlive the turn.
    Turn(Turns& turns, std::string name, absl::Duration patience = absl::InfiniteDuration());
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    bool mine() const { return mine_; }

   private:
    Turns& turns_;
    const std::string name_;
    bool mine_ = false;
  };

 private:
  const Clock& clock_;
  Mutex mutex_;
  CondVar ended_;
  std::set<std::string> taken_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_TURNS_H_
