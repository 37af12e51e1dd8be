// The plans that were made, by digest, and how to make them again.
#ifndef CAIRN_COORDINATOR_SERVER_PLAN_STORE_H_
#define CAIRN_COORDINATOR_SERVER_PLAN_STORE_H_

#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/storage/posix.h"
#include "coordinator/job/action.h"
#include "coordinator/planner/load_plan.h"
#include "coordinator/planner/load_wish.h"
#include "coordinator/planner/save_plan.h"
#include "coordinator/server/layout_store.h"

namespace cairn {

// Save plans are kept below `<root>/.cairn/plans/` as what they were made from (layouts, nodes, options), so that a
// restarted coordinator finds them by digest without asking the agents; load plans only in memory. Both are bounded.
// Thread-safe; methods block on planning and storage.
class PlanStore {
 public:
  PlanStore(PosixStorage& storage, LayoutStore& layouts, int bins_per_rank)
      : storage_(storage), layouts_(layouts), bins_per_rank_(bins_per_rank) {}

  // Puts the layouts that are kept on disk into the layout store and returns their digests.
  absl::StatusOr<std::vector<std::string>> Recover();

  // NOT_FOUND (PLAN_UNKNOWN): a layout's bytes are gone; else the planner's errors.
  absl::StatusOr<SavePlan> MakeSave(const std::vector<std::string>& layout, const std::vector<std::string>& node);
  absl::StatusOr<LoadPlan> MakeLoad(const Manifest& source, const std::vector<std::string>& layout,
                                    const std::vector<std::string>& node, uint64_t round_bytes, const LoadWish& wish);
  // What these target layouts ask for. NOT_FOUND (PLAN_UNKNOWN), and the errors of ReadLoadWish.
  absl::StatusOr<LoadWish> WishOf(const std::vector<std::string>& layout, const std::vector<std::string>& node);

  // Made before, perhaps by an earlier coordinator. NOT_FOUND (PLAN_UNKNOWN).
  absl::StatusOr<SavePlan> FindSave(const std::string& digest);
  // The serialized part of a rank. NOT_FOUND (PLAN_UNKNOWN): no such plan, or it is none of this rank's.
  absl::StatusOr<std::shared_ptr<const std::string>> PartFor(const std::string& digest, int rank);

 private:
  struct Inputs {
    std::vector<std::shared_ptr<const std::string>> bytes;
    std::vector<RankInput> ranks;
  };
  absl::StatusOr<Inputs> Collect(const std::vector<std::string>& layout, const std::vector<std::string>& node);
  absl::Status Persist(const SavePlan& plan, const std::vector<std::string>& layout,
                       const std::vector<std::string>& node);

  static constexpr size_t kPlansKept = 8;
  static constexpr size_t kPartBytesKept = size_t{256} << 20;

  PosixStorage& storage_;
  LayoutStore& layouts_;
  const int bins_per_rank_;
  Mutex mutex_;
  std::list<SavePlan> saves_ ABSL_GUARDED_BY(mutex_);  // used last first
  std::list<LoadPlan> loads_ ABSL_GUARDED_BY(mutex_);
  // Parts that are being downloaded.
  struct Part {
    std::string digest;
    int rank;
    std::shared_ptr<const std::string> bytes;
  };
  std::list<Part> parts_ ABSL_GUARDED_BY(mutex_);
  size_t part_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_PLAN_STORE_H_
