// Says where each rank of a save is, whom it waits for, and what people see of it.
#ifndef CAIRN_COORDINATOR_SAVE_SAVE_VIEW_H_
#define CAIRN_COORDINATOR_SAVE_SAVE_VIEW_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/checkpoint_service.pb.h"
#include "coordinator/decision/job_context.h"
#include "coordinator/decision/rank_error.h"
#include "coordinator/decision/shown_ranks.h"
#include "coordinator/save/save.h"

namespace cairn {

// Looks at a save, which must outlive it, and changes nothing. Not thread-safe.
class SaveView {
 public:
  explicit SaveView(const Save& save) : save_(save) {}

  // The save as people see it, with the ranks of `shown`; by default with those that ShownRanks finds worth a look.
  v1::Checkpoint Checkpoint(const JobContext& context) const;
  v1::Checkpoint Checkpoint(const JobContext& context, const ShownRanks& shown) const;
  NoteworthyRanks Noteworthy(const JobContext& context) const;

  v1::Phase::Value PhaseOf(const SaveRank& rank) const;
  // Returns when the rank last got nearer to what it is waited for.
  absl::Time ProgressOf(int rank, const JobContext& context) const;
  std::string DetailOf(int rank, const JobContext& context) const;
  // The ranks that the save waits for now. Those are left out that wait for another rank to stage shards that they
  // write for it, or to stage at all before shards can move over NCCL: that rank is late, not they.
  std::vector<int> Awaited(const JobContext& context) const;
  // The same, with those.
  std::vector<int> AllAwaited(const JobContext& context) const;
  // Returns those at fault among ranks that are awaited: see HoldingUp.
  std::vector<int> AtFault(std::vector<int> ranks, const JobContext& context) const;
  std::vector<NamedRank> Named(const std::vector<int>& ranks, const JobContext& context) const;

 private:
  // Returns whether the rank, one of those that are awaited, is late.
  bool IsLate(int rank, const JobContext& context) const;

  const Save& save_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SAVE_SAVE_VIEW_H_
