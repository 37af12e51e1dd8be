// Keeps the copies at a mirror in order: deletes those that are not wanted any more, removes what is left of them, and
// looks whether the files of others are whole.
#ifndef CAIRN_STORE_MIRROR_MIRROR_UPKEEP_H_
#define CAIRN_STORE_MIRROR_MIRROR_UPKEEP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "store/mirror/mirror_job.h"
#include "store/mirror/mirror_place.h"
#include "store/mirror/mirror_reader.h"
#include "store/mirror/mirror_rule.h"
#include "store/mirror/mirror_view.h"
#include "store/read/checkpoint_store.h"
#include "store/write/step_requests.h"

namespace cairn {

// For the thread that looks at the jobs, while it has the mirror's turn.
class MirrorUpkeep {
 public:
  // `keep_last`: MirrorRule::keep_last. Files of deleted copies stay until `removes_from` by `clock`. All references
  // must outlive the object.
  MirrorUpkeep(CheckpointStore& root, MirrorView& view, const MirrorReader& reader, int64_t keep_last,
               absl::Time removes_from, const Clock& clock, LookSoon look)
      : root_(root),
        view_(view),
        reader_(reader),
        keep_last_(keep_last),
        removes_from_(removes_from),
        clock_(clock),
        look_(std::move(look)) {}

  // Deletes the copies of MirrorWork::unwanted and outdated. A copy that is the last valid checkpoint of both places,
  // pinned, or being copied stays. What cannot be done does not keep the rest back. Returns the first error.
  absl::Status Delete(const MirrorPlace::Held& held, const std::string& job, const MirrorRecords& records,
                      const MirrorWork& work);
  // Looks at the files of copies that only the mirror has, of some each time.
  void CheckOnlyThere(const MirrorPlace::Held& held, const std::string& job, const MirrorRecords& records);
  // Removes the files of deleted copies that nobody reads, and what was left of copies that are not wanted any more.
  // Returns the first error.
  absl::Status Clean(const MirrorPlace::Held& held, const std::string& job, const MirrorRecords& records,
                     const MirrorWork& work);

 private:
  // Deletes at most `left` copies, and counts them down.
  absl::Status DeleteOutdated(const MirrorPlace::Held& held, const std::string& job, const MirrorRecords& records,
                              const MirrorWork& work, size_t& left);
  // Looks at the files of the newest copies, for the sake of which older ones are to go. Returns whether all are whole.
  absl::StatusOr<bool> NewestAreWhole(const MirrorPlace::Held& held, const std::string& job,
                                      const MirrorRecords& records);
  absl::Status DeleteCopy(const MirrorPlace::Held& held, const std::string& job, DeleteStep action);
  absl::Status CleanAttempt(const MirrorPlace::Held& held, const std::string& job, const StepRecord& step,
                            const StoredAttempt& attempt, const MirrorWork& work);

  CheckpointStore& root_;
  MirrorView& view_;
  const MirrorReader& reader_;
  const int64_t keep_last_;
  const absl::Time removes_from_;
  const Clock& clock_;
  const LookSoon look_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_MIRROR_UPKEEP_H_
