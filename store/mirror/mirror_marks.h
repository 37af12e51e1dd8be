// Pins and tags of a root and its mirror: the copies get those that their steps have at the root.
#ifndef CAIRN_STORE_MIRROR_MIRROR_MARKS_H_
#define CAIRN_STORE_MIRROR_MIRROR_MARKS_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "store/mirror/mirror_job.h"
#include "store/mirror/mirror_place.h"
#include "store/mirror/mirror_view.h"
#include "store/mirror/turns.h"
#include "store/storage/storage.h"
#include "store/write/step_requests.h"

namespace cairn {

// Thread-safe.
class MirrorMarks {
 public:
  // Pins or tags a step at the root.
  using MarkRoot = std::function<absl::Status(const std::string& job, const ChangeSteps& mark)>;

  // `root`: the root's storage. Whoever changes pins and tags of a job at the root has its turn of `orders`.
  // `mark_root` may be null: then the root gets no mark of a copy. All references must outlive the object.
  MirrorMarks(Storage& root, MirrorView& view, Turns& orders, const Clock& clock, MarkRoot mark_root, LookSoon look)
      : root_(root),
        view_(view),
        orders_(orders),
        clock_(clock),
        mark_root_(std::move(mark_root)),
        look_(std::move(look)) {}

  // A person has taken a tag, or the pin if `tag` is empty, from a step at the root: Take takes it from the copy too.
  // Does not block; call it within the turn in which the mark was taken, so that Copy does not set it again. The wish
  // is kept in memory: a mark that is left because of that only keeps a copy longer.
  void Unmark(const std::string& job, int64_t step, const std::string& tag);

  // A person sets such a mark at the mirror: an earlier wish of Unmark is void. Call it within the turn in which the
  // mark is set, and before.
  void Remark(const std::string& job, int64_t step, const std::string& tag);

  // Marks of a job: steps and tags; an empty tag is the pin.
  using Marks = std::set<std::pair<int64_t, std::string>>;
  // Takes the marks of Unmark away, and all from copies of deleted steps. `taken`: those of Unmark. Returns the first
  // error.
  absl::Status Take(const MirrorPlace::Held& held, const std::string& job, const MirrorRecords& records, Marks& taken);
  // Gives the copies the pins and tags that their steps have at the root. A mark that only the mirror has stays: a
  // person made it there, or the root comes from a backup. If a later commit of its step stands at the root, the mark
  // is made there too, unless it is one of `taken`. Returns the first error.
  absl::Status Copy(const MirrorPlace::Held& held, const std::string& job, const MirrorRecords& records,
                    const Marks& taken);

 private:
  absl::Status CopyOne(const MirrorPlace::Held& held, const std::string& job, int64_t step, const std::string& tag);
  // Makes the mark of a step at the mirror at the root too, unless a person has taken it away there meanwhile.
  absl::Status CopyToRoot(const std::string& job, int64_t step, const std::string& tag);

  Storage& root_;
  MirrorView& view_;
  Turns& orders_;
  const Clock& clock_;
  const MarkRoot mark_root_;
  const LookSoon look_;
  Mutex mutex_;
  // Jobs, steps and tags.
  std::set<std::tuple<std::string, int64_t, std::string>> unmarked_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_MIRROR_MARKS_H_
