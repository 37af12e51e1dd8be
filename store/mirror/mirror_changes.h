// What people and saves may change of steps that only a mirror has.
#ifndef CAIRN_STORE_MIRROR_MIRROR_CHANGES_H_
#define CAIRN_STORE_MIRROR_MIRROR_CHANGES_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "store/mirror/mirror_marks.h"
#include "store/mirror/mirror_place.h"
#include "store/mirror/mirror_reader.h"
#include "store/mirror/mirror_view.h"
#include "store/mirror/turns.h"
#include "store/read/checkpoint_store.h"
#include "store/write/attempt_requests.h"
#include "store/write/step_requests.h"

namespace cairn {

// Thread-safe.
class MirrorChanges {
 public:
  // Whoever changes records at the mirror has the one turn of `turns`. All references must outlive the object.
  MirrorChanges(std::shared_ptr<MirrorPlace> place, CheckpointStore& root, MirrorView& view, MirrorReader& reader,
                MirrorMarks& marks, Turns& turns, absl::Duration patience, const Clock& clock, LookSoon look)
      : place_(std::move(place)),
        root_(root),
        view_(view),
        reader_(reader),
        marks_(marks),
        turns_(turns),
        patience_(patience),
        clock_(clock),
        look_(std::move(look)) {}

  // Says whether a save may take a step that only the mirror has, as far as that was seen: does not block.
  // ALREADY_EXISTS (STEP_COMMITTED): the training builds on that step, and `save` does not overwrite.
  // FAILED_PRECONDITION (CHECKPOINT_PINNED): a pin or a tag keeps it.
  absl::Status MayReplace(const std::string& job, const ReserveAttempt& save) const;

  // Deletes, pins or tags a step that only the mirror has, durably; also takes a tag away from such a step. Nothing if
  // the change names no such step. Waits for the mirror's storage, within limits. Fails as the DeletionStore does; or,
  // if nobody knows whether the mirror has the step, with the error of its storage.
  absl::StatusOr<std::optional<ChangedSteps>> Change(const std::string& job, const ChangeSteps& change);

 private:
  const std::shared_ptr<MirrorPlace> place_;
  CheckpointStore& root_;
  MirrorView& view_;
  MirrorReader& reader_;
  MirrorMarks& marks_;
  Turns& turns_;
  const absl::Duration patience_;
  const Clock& clock_;
  const LookSoon look_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_MIRROR_CHANGES_H_
