// One collective load: the loads with one number of all ranks are one operation.
//
//   COLLECTING --all begun, step found, planned--> READING --all done--> DONE
//        \__________________________________________/--> FAILED, to all ranks alike
//
// Reading changes nothing in storage, so a failed load needs no verdict there. A reshard is a load whose source is what
// the ranks hold in memory.
#ifndef CAIRN_COORDINATOR_LOAD_LOAD_H_
#define CAIRN_COORDINATOR_LOAD_LOAD_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/checkpoint_service.pb.h"
#include "coordinator/job/blame.h"
#include "coordinator/job/context.h"

namespace cairn {

// A function of reports, results and `context.now`. Not thread-safe.
class Load {
 public:
  enum class Phase { kCollecting, kReading, kDone, kFailed };

  Load(uint64_t number, absl::Time now) : number_(number), progress_base_(now) {}

  uint64_t number() const { return number_; }
  Phase phase() const { return phase_; }
  bool ended() const { return phase_ == Phase::kDone || phase_ == Phase::kFailed; }
  const absl::Status& error() const { return error_; }
  // The step that it reads, once it is known: nobody may delete it until the load has ended.
  std::optional<int64_t> pinned_step() const {
    return ended() || !has_plan() || IsReshard() ? std::nullopt : std::optional(plan_.step);
  }

  void Report(const Member& member, const v1::LoadState& state, Context& context);
  void Advance(Context& context);
  void Fail(absl::Status error, Context& context);
  void OnPlanned(uint64_t ticket, const absl::StatusOr<PlannedLoad>& plan, Context& context);

  // Whether `state` of `member` belongs to this load and not to one that a later trainer began with the same number.
  bool Answers(const Member& member, const v1::LoadState& state) const;
  v1::LoadOrder OrderFor(const Member& member, const Context& context) const;
  v1::Load View(const Context& context) const;

 private:
  struct Rank {
    bool begun = false;
    uint64_t agent = 0;
    v1::LoadState state;
    absl::Time progress = absl::InfinitePast();
    bool seen = false;
    uint64_t seen_trainer = 0;
    // ... which took the place of one that was waited for before.
    bool successor = false;
    // Before it has begun: since when it has no trainer.
    absl::Time trainer_gone = absl::InfiniteFuture();
  };

  // The bytes come from the ranks' memory instead of a checkpoint.
  bool IsReshard() const;
  Operation operation() const { return {IsReshard() ? "reshard" : "load", wanted_step(), 0}; }
  std::optional<int64_t> wanted_step() const;
  bool has_plan() const { return !plan_.plan_digest.empty(); }
  bool AllBegun(const Context& context) const;
  std::string PhaseOf(const Rank& rank) const;
  absl::Time ProgressOf(int rank, const Context& context) const;
  std::vector<int> Awaited(const Context& context) const;
  std::vector<Culprit> Culprits(const std::vector<int>& ranks, const Context& context) const;
  bool CheckMembers(Context& context);
  // Before the load ends for the loss of ranks or trainers: who came to take the place of one of them begins anew.
  void ReleaseSuccessors();
  bool CheckErrors(Context& context);
  bool CheckAgreement(Context& context);
  static bool IsSuccessor(const Rank& rank, uint64_t trainer);
  void SetPhase(Phase phase, Context& context);
  // What is asked of an ended load is small.
  void Drop();

  const uint64_t number_;
  Phase phase_ = Phase::kCollecting;
  std::vector<Rank> ranks_;
  absl::Time progress_base_;
  absl::Time first_failure_ = absl::InfiniteFuture();
  uint64_t ticket_ = 0;
  PlannedLoad plan_;
  absl::Status error_;
  uint64_t storage_bytes_ = 0;
  std::string path_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_LOAD_LOAD_H_
