// The plans that were made, by digest, and how to make them again.
#ifndef CAIRN_COORDINATOR_SERVER_PLAN_STORE_H_
#define CAIRN_COORDINATOR_SERVER_PLAN_STORE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "coordinator/decision/core_action.h"
#include "planner/load/load_plan.h"
#include "planner/load/load_wish.h"
#include "planner/save/save_plan.h"
#include "store/plan/layout_store.h"
#include "store/plan/plan_file.h"
#include "store/storage/storage.h"

namespace cairn {

// Save plans are kept below `<root>/.cairn/plans/` as what they were made from, each in one file (plan_file.h), so that
// a restarted coordinator finds them by digest without asking the agents. They are bounded, but for what somebody
// holds: a plan by which a save goes is found until its end, however many jobs there are. Plans of loads are only in
// memory, and as long as somebody holds them. Thread-safe; methods block on planning and, but for MakeSave, on storage.
//
// One rank of 16,384 with 300 tensors each (fully sharded; Megatron with a distributed optimizer) keeps these in
// memory: its layout in the LayoutStore, 24 and 31 kB; the plan of a save, 23 and 20 kB; no part of it, since a part is
// made when it is asked for (0.6 kB); the plan of a load, 16 and 48 kB, which are its part. benchmarks/coordinator
// measures them.
class PlanStore {
 public:
  // `save`: the options of all save plans.
  // `plan_bytes`: what plans of saves may take in memory, but for the two used last. An older one is made again, from
  // what is held or on disk, when it is asked for.
  PlanStore(Storage& storage, LayoutStore& layouts, SaveOptions save, uint64_t plan_bytes = kPlanBytesKept)
      : storage_(storage), layouts_(layouts), save_options_(std::move(save)), plan_bytes_(plan_bytes) {}

  // Trims what is kept on disk, puts the layouts of the newest plans into the layout store and returns their digests.
  // Also goes what cannot be read, with files of earlier forms (a text for the plan and a file for each layout): agents
  // upload their layouts again, and the same plan is made of them.
  absl::StatusOr<std::vector<std::string>> Recover();

  // Makes the newest plans again before anyone asks, so that agents which come back with unchanged layouts get them by
  // digest at once. This takes a while; it looks at `stop` between plans.
  void Warm(const std::atomic<bool>& stop);

  // NOT_FOUND (PLAN_UNKNOWN): a layout's bytes are gone; else the planner's errors.
  absl::StatusOr<SavePlan> MakeSave(const std::vector<std::string>& layout, const std::vector<std::string>& node);
  // Keeps on disk what this plan was made from, in place of what the oldest plan was made from. NOT_FOUND
  // (PLAN_UNKNOWN): a layout's bytes are gone.
  absl::Status Persist(const std::string& digest, const std::vector<std::string>& layout,
                       const std::vector<std::string>& node);
  // `keepers`, `directory` and `verify_fingerprints` go to LoadOptions.
  absl::StatusOr<LoadPlan> MakeLoad(const Manifest& source, const std::vector<std::string>& layout,
                                    const std::vector<std::string>& node, uint64_t round_bytes, const LoadWish& wish,
                                    std::vector<int> keepers = {}, std::string directory = {},
                                    bool verify_fingerprints = false);
  // Returns what these target layouts ask for. NOT_FOUND (PLAN_UNKNOWN), and the errors of ReadLoadWish.
  absl::StatusOr<LoadWish> WishOf(const std::vector<std::string>& layout, const std::vector<std::string>& node);

  // Plans copies from memory of one layout to memory of the other. `layout` and `source_layout` are by rank.
  absl::StatusOr<ReshardPlan> MakeReshard(const std::vector<std::string>& source_layout,
                                          const std::vector<std::string>& layout, const std::vector<std::string>& node);

  // FindSave and PartFor find the plan for as long as the result lives. A save keeps only what its plan was made from,
  // and its layouts must stay as long in the layout store, or on disk. A load keeps the plan itself, since nobody can
  // make one again.
  std::shared_ptr<const void> HoldSave(const std::string& digest, const std::vector<std::string>& layout,
                                       const std::vector<std::string>& node);
  std::shared_ptr<const void> HoldLoad(const LoadPlan& plan);
  std::shared_ptr<const void> HoldReshard(const ReshardPlan& plan);

  // A plan that was made before, perhaps by an earlier coordinator. NOT_FOUND (PLAN_UNKNOWN).
  absl::StatusOr<SavePlan> FindSave(const std::string& digest);
  // Returns the serialized part of a rank. It is made when it is asked for, and kept for further chunks if it has more
  // than one. NOT_FOUND (PLAN_UNKNOWN): no such plan, or it is none of this rank's.
  absl::StatusOr<std::shared_ptr<const std::string>> PartFor(const std::string& digest, int rank);

 private:
  struct Inputs {
    std::vector<std::shared_ptr<const std::string>> bytes;
    std::vector<RankInput> ranks;
  };
  // A plan on disk.
  struct Kept {
    std::string digest;
    uint64_t bytes = 0;
  };
  struct Writing {
    std::string digest;
    PlanInputs inputs;
  };
  // `file`: where layouts that are not in memory are read from, if there is one.
  absl::StatusOr<Inputs> Collect(const std::vector<std::string>& layout, const std::vector<std::string>& node,
                                 const PlanFile* file = nullptr);
  absl::StatusOr<SavePlan> Make(const Inputs& inputs);
  // Returns the plan in memory that is most like one of these inputs, so that a new plan takes over what has not
  // changed.
  std::optional<SavePlan> FindLike(const Inputs& inputs);
  // Returns the file's length.
  absl::StatusOr<uint64_t> Write(const Writing& writing);
  // Removes the plans of `kept` that are too many.
  absl::Status Trim(std::list<Kept>& kept);
  struct Made {
    SavePlan plan;
    uint64_t bytes = 0;  // about what it takes
  };
  void Keep(const SavePlan& plan, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Somebody holds this under a digest: a plan, or what the plan of a save was made from.
  struct Held {
    std::optional<SavePlan> save;
    std::optional<LoadPlan> load;
    std::vector<std::string> layout, node;
  };
  std::shared_ptr<const Held> Hold(const std::string& digest, Held held);
  // Returns null if nobody holds it.
  std::shared_ptr<const Held> FindHeld(const std::string& digest);
  // Moves it to the front. Null if it is not there.
  const SavePlan* Take(const std::string& digest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // So many are kept in memory. All ranks of a job ask for their parts at once, and a plan of a save that is not here
  // is made anew for each.
  static constexpr size_t kSavesKept = 64;
  static constexpr uint64_t kPlanBytesKept = uint64_t{1} << 30;
  static constexpr size_t kPartBytesKept = size_t{64} << 20;

  Storage& storage_;
  LayoutStore& layouts_;
  const SaveOptions save_options_;
  const uint64_t plan_bytes_;
  Mutex mutex_;
  std::list<Made> saves_ ABSL_GUARDED_BY(mutex_);  // used last first
  std::map<std::string, std::weak_ptr<const Held>> held_ ABSL_GUARDED_BY(mutex_);
  // Parts of more than one chunk, which are being downloaded; used last first.
  struct Part {
    std::string digest;
    int rank;
    std::shared_ptr<const std::string> bytes;
  };
  std::list<Part> parts_ ABSL_GUARDED_BY(mutex_);
  size_t part_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // These are on disk, newest first. Only the one thread that writes uses it.
  std::list<Kept> kept_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Writing> to_write_ ABSL_GUARDED_BY(mutex_);  // newest first
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_PLAN_STORE_H_
