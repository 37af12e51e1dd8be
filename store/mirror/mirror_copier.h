// Copies the steps that wait to a mirror, one at a time.
#ifndef CAIRN_STORE_MIRROR_MIRROR_COPIER_H_
#define CAIRN_STORE_MIRROR_MIRROR_COPIER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "store/mirror/mirror_place.h"
#include "store/mirror/mirror_view.h"
#include "store/mirror/turns.h"
#include "store/read/checkpoint_store.h"

namespace cairn {

// How long failed copies rest; see MirrorOptions.
struct CopyRests {
  absl::Duration first;
  absl::Duration longest;
  absl::Duration damaged_step;
};

// For one thread, but for Interrupt and Stop.
class MirrorCopier {
 public:
  // `place` is held by another thread. Whoever begins to copy a step has the one turn of `turns`. All references must
  // outlive the object.
  MirrorCopier(std::shared_ptr<MirrorPlace> place, CheckpointStore& root, MirrorView& view, Turns& turns,
               const CopyRests& rests, const Clock& clock, LookSoon look)
      : place_(std::move(place)),
        root_(root),
        view_(view),
        turns_(turns),
        rests_(rests),
        clock_(clock),
        look_(std::move(look)) {}

  // Copies the next step. Sets `next` to the time before which no copy is worth a try. Returns false if there is none
  // now.
  bool CopyNext(absl::Time& next);
  // Ends the copy under way; the next one may begin. Any thread may call it.
  void Interrupt() { interrupted_ = true; }
  // Ends the copy under way, and every later one. Any thread may call it.
  void Stop() { stopped_ = interrupted_ = true; }

 private:
  absl::Status Copy(const MirrorPlace::Held& held, const MirrorView::Copy& copy);
  // Forgets that rules have deleted the attempt there, so that it can be copied again under its number: a pin, or the
  // deletion of a later step, may want it. What is left of its files is gone on with. The caller has the turn.
  static absl::Status ForgetDeleted(const MirrorPlace::Held& held, const std::string& job, int64_t step,
                                    uint32_t attempt);

  const std::shared_ptr<MirrorPlace> place_;
  CheckpointStore& root_;
  MirrorView& view_;
  Turns& turns_;
  const CopyRests rests_;
  const Clock& clock_;
  const LookSoon look_;
  std::atomic<bool> stopped_ = false;
  std::atomic<bool> interrupted_ = false;  // the copy under way has no lock any more, or the mirror ends
  std::atomic<uint64_t> bytes_done_ = 0;
  absl::Duration retry_ = absl::ZeroDuration();
  std::string told_;  // the error that the log knows
};

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_MIRROR_COPIER_H_
