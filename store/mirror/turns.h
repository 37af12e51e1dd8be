// Lets one at a time do something to a thing that has a name, such as a job: a mutex for each name, which one can wait
// for with patience.
#ifndef CAIRN_STORE_MIRROR_TURNS_H_
#define CAIRN_STORE_MIRROR_TURNS_H_

#include <list>
#include <map>
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
    // Waits for the turn of that name, for `patience` at most. Who came first has it first. `turns` must outlive the
    // turn.
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
  // By name, who has the turn, and who waits for it in this order.
  std::map<std::string, std::list<const Turn*>> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_TURNS_H_
