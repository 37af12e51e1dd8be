// The requests from outside for saves that no rank has begun yet. Each waits until the saves in its way have ended and
// the ranks have agreed on a step, or, if it names a step, until they get there; then the save of that step answers it.
#ifndef CAIRN_COORDINATOR_JOB_SAVE_REQUESTS_H_
#define CAIRN_COORDINATOR_JOB_SAVE_REQUESTS_H_

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/checkpoint_service.pb.h"
#include "coordinator/decision/checkpoint_key.h"
#include "coordinator/decision/job_context.h"
#include "coordinator/decision/rank_error.h"
#include "coordinator/decision/shown_ranks.h"
#include "coordinator/job/outcome_book.h"
#include "coordinator/job/save_request.h"
#include "coordinator/membership/news.h"
#include "coordinator/save/saves.h"
#include "coordinator/save/step_agreement.h"

namespace cairn {

// A function of reports, results and `context.now`. Not thread-safe.
class SaveRequests {
 public:
  // Takes a new request. FAILED_PRECONDITION (STEP_PASSED): it names a step that a rank has passed.
  absl::Status Add(const v1::CreateCheckpointRequest& request, const Saves& saves, const JobContext& context);
  // Gives up the save that the key names, for all who wait for it; every save that is waited for if it names none.
  void Cancel(const CheckpointKey& key, const JobContext& context);

  // Takes what a member has reported.
  News OnReport(const Member& member, const JobContext& context);
  // The rank's agent has come, is lost, or has another trainer.
  News OnMember(int rank, const JobContext& context);
  // These ranks' agents are lost, and with them every request that waits.
  void OnLost(const std::vector<int>& ranks, const JobContext& context);
  // A save has begun. It answers the requests that wait for its step. If there is none, a request that ended after the
  // ranks had agreed on the step takes the save with it.
  News OnSaveBegun(Save& save, const JobContext& context);
  // Takes every step that is possible now: hands requests to saves that are under way, ends those that nobody answers,
  // and lets the ranks agree on a step. Looks at every rank. There is a step if a save has been handed a request.
  News Advance(Saves& saves, const OutcomeBook& outcomes, const JobContext& context);

  // Returns whether a request waits.
  bool waiting() const;
  // Returns whether the ranks are agreeing on a step, or still have to be told that they need not.
  bool agreeing() const { return agreement_.state() != StepAgreement::State::kIdle; }
  // Returns what the ranks should do to agree on a step; nothing if there is nothing to do.
  std::optional<v1::ArmOrder> Order() const { return agreement_.Order(); }

  // Returns whether this request was made, whatever has become of it.
  bool Contains(const std::string& id) const;
  // The request with this id, else the one that waits for this step. Null if there is none, or if a save answers it.
  const SaveRequest* Find(const CheckpointKey& key) const;
  // The request that people are shown: the first one that waits, else the one that ended last, if no save has begun
  // since. Null if there is none.
  const SaveRequest* Shown() const;
  v1::Checkpoint View(const SaveRequest& request, const JobContext& context) const;
  v1::Checkpoint View(const SaveRequest& request, const JobContext& context, const ShownRanks& shown) const;
  NoteworthyRanks Noteworthy(const SaveRequest& request, const JobContext& context) const;

  // Forgets requests that have ended, but for the last ones.
  void Forget();

 private:
  // Returns whether the trainer that the request was made for has ended. Notes the trainer if it is the rank's first
  // one.
  static bool HasLostTrainer(SaveRequest& request, const Member& member);
  // The save answers the request from now on, however it ends.
  static void Attach(SaveRequest& request, Save& save);
  // Takes up the step that the ranks have agreed on, unless its save has ended already: nobody begins it again.
  void TakeAgreedStep(SaveRequest& request, const Saves& saves, const JobContext& context);
  bool SaveOfAgreementEnded(const Saves& saves) const;
  // Returns whether a request that waits has named this step.
  bool IsGiven(int64_t step) const;
  // Returns whether a save answers the request now, or the request has ended because its step is committed.
  bool Settle(SaveRequest& request, Saves& saves, const OutcomeBook& outcomes, const JobContext& context);
  void CheckTrainers(SaveRequest& request, const JobContext& context);
  // `blocked`: the save of another step is in its way.
  void CheckTime(SaveRequest& request, bool blocked, const JobContext& context);
  // The ranks that the request waits for, and those of them that are late.
  struct Awaited {
    std::vector<NamedRank> ranks;
    std::vector<NamedRank> late;
  };
  Awaited LookAtRanks(SaveRequest& request, const JobContext& context) const;
  void EndAsLate(SaveRequest& request, const Awaited& awaited, const JobContext& context);
  // WORLD_INCOMPLETE: names the ranks without an agent.
  void EndAsIncomplete(SaveRequest& request, const JobContext& context);
  // STORAGE_STALLED, if the commit of an earlier save holds everything up. Returns whether that is so.
  bool EndAsStalled(SaveRequest& request, const JobContext& context);
  void End(SaveRequest& request, absl::Status error, const JobContext& context);
  // `first`: the request that needs an agreement and has none; null if there is none.
  void AdvanceAgreement(SaveRequest* first, const Saves& saves, const OutcomeBook& outcomes, const JobContext& context);
  // Gives an agreement up that nobody needs any more, or that is in the way of `first`.
  void CheckAgreement(const SaveRequest* first, const Saves& saves, const OutcomeBook& outcomes,
                      const JobContext& context);

  std::list<SaveRequest> requests_;  // oldest first
  StepAgreement agreement_;
  bool agreement_recovered_ = false;
  // True if a save of the agreement's step has begun since the agreement did.
  bool save_of_agreement_begun_ = false;
  uint64_t saves_begun_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_SAVE_REQUESTS_H_
