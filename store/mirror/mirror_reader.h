// Reads a mirror: finds there what the root has no more, or not whole. It also says whether rules may delete a step at
// the root for the sake of its copy.
#ifndef CAIRN_STORE_MIRROR_MIRROR_READER_H_
#define CAIRN_STORE_MIRROR_MIRROR_READER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "store/mirror/mirror_place.h"
#include "store/mirror/mirror_step.h"
#include "store/mirror/mirror_view.h"
#include "store/read/checkpoint_store.h"

namespace cairn {

// Thread-safe. Nobody waits for storage of the mirror that does not answer: threads of this object's own ask it.
class MirrorReader {
 public:
  // The mirror answers within `patience`, or callers are told that it does not. All references must outlive the object.
  MirrorReader(std::shared_ptr<MirrorPlace> place, CheckpointStore& root, MirrorView& view, absl::Duration patience,
               const Clock& clock, LookSoon look)
      : place_(std::move(place)),
        root_(root),
        view_(view),
        patience_(patience),
        clock_(clock),
        look_(std::move(look)) {}

  // Returns false while storage holds a thread of this object. Then nothing that it uses may be destroyed.
  bool IsIdle() const { return !*looking_ && *asking_ == 0; }

  // Asks the mirror whether it is there, and returns it. STORAGE_STALLED: it has not answered for `patience`. Else
  // fails as MirrorPlace::ToRead.
  absl::StatusOr<std::shared_ptr<MirrorPlace::Side>> ToRead(const std::string& job, absl::Duration patience);
  // Reads steps of the job at both places: these, which must ascend, or all. The errors of both storages.
  absl::StatusOr<MirrorReading> ReadBoth(MirrorPlace::Side& side, const std::string& job,
                                         std::optional<std::vector<int64_t>> steps = std::nullopt);

  struct Found {
    CheckpointStore::ManifestPtr manifest;
    std::vector<std::pair<int64_t, absl::Status>> passed_over;  // newest first
    // The full name of the job's directory at the mirror; empty for a step of the root.
    std::string directory;
    // While somebody has it, the files of the step are not removed by this mirror.
    std::shared_ptr<const void> hold;
  };
  // Finds the copy of a step: of the commit that the root has, or of one that only the mirror has. NOT_FOUND
  // (NOT_COMMITTED); proven damage; or an error of storage, which says that nobody knows.
  absl::StatusOr<Found> Find(const std::string& job, int64_t step);
  // Finds the latest checkpoint by the records of both places that is whole at one of them. At the root that is a step
  // with all its files, but none of `damaged`; then Found has that step's manifest and an empty directory. With
  // `fallback`, later steps that no place has whole are passed over; else the latest must be the one. Fails as Find.
  absl::StatusOr<Found> FindLatest(const std::string& job, bool fallback, const std::set<int64_t>& damaged);
  // Returns whether somebody has a Found::hold of the step.
  bool InUse(const std::string& job, int64_t step) const;

  // Returns whether rules may delete the step at the root: the rule wants no copy of it, or its copy is whole. The
  // record of the copy and the lengths of its files are looked at, at most once a minute. False if only its number says
  // that it is a copy (MirrorStep::by_number): when the step has gone, nobody could tell it from another commit.
  bool MayRulesDelete(const std::string& job, int64_t step);

 private:
  // A question to the mirror, which several may wait for. Storage may hold whoever asks it.
  struct Question {
    Mutex mutex;
    CondVar answered;
    std::optional<absl::StatusOr<std::shared_ptr<MirrorPlace::Side>>> answer ABSL_GUARDED_BY(mutex);
  };

  // Returns the manifest of the step's copy with a hold. Fails if its step was deleted meanwhile. NOT_FOUND
  // (NOT_COMMITTED): by its files it is another commit than the root has in `root`, which may be null.
  absl::StatusOr<Found> Held(MirrorPlace::Side& side, const std::string& job, const MirrorStep& step,
                             const StepRecord* root);

  const std::shared_ptr<MirrorPlace> place_;  // shared with threads that storage may hold
  CheckpointStore& root_;
  MirrorView& view_;
  const absl::Duration patience_;
  const Clock& clock_;
  const LookSoon look_;
  mutable Mutex mutex_;
  std::map<std::pair<std::string, int64_t>, std::weak_ptr<const void>> loads_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Question> question_ ABSL_GUARDED_BY(mutex_);
  const std::shared_ptr<std::atomic<int>> asking_ = std::make_shared<std::atomic<int>>(0);
  // Set while a look of MayRulesDelete has not ended.
  const std::shared_ptr<std::atomic<bool>> looking_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_MIRROR_READER_H_
