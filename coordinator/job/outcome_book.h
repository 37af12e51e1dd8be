// Remembers what storage has said of the job's attempts: which are committed, which were aborted and why. People may
// remove steps behind the coordinator's back, so a step is read again before anybody is refused for what is remembered
// of it, at most once a minute for the same caller.
#ifndef CAIRN_COORDINATOR_JOB_OUTCOME_BOOK_H_
#define CAIRN_COORDINATOR_JOB_OUTCOME_BOOK_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/decision/checkpoint_key.h"
#include "coordinator/decision/job_context.h"

namespace cairn {

// Not thread-safe.
class OutcomeBook {
 public:
  // Takes what stands in storage, in the place of what was remembered of the attempt.
  void Keep(const StoredAttempt& outcome);

  bool empty() const { return outcomes_.empty(); }
  size_t size() const { return outcomes_.size(); }
  // The latest step on which the training builds.
  std::optional<int64_t> last_committed() const { return lineage().latest(); }
  bool Committed(int64_t step) const;
  // Returns what is committed, and what builds on what. The reference stays valid, and is brought up to date by the
  // next call.
  const JobLineage& lineage() const;
  std::shared_ptr<const KnownSteps> known_steps() const;
  // The steps that are committed or damaged, ascending.
  std::vector<int64_t> Checkpoints() const;
  // The steps of which several attempts stand: the highest one has taken the place of the others.
  std::vector<int64_t> Replaced() const;
  // STEP_COMMITTED: what whoever would save the step again is told.
  static absl::Status CommittedError(int64_t step, const JobContext& context);
  // Each is null if there is none. The second one leaves out an outcome that could not be read: it may stand all the
  // same. The third one finds the newest outcome that the key names; of a step that is committed, its commit.
  const StoredAttempt* Find(int64_t step, uint32_t attempt) const;
  const StoredAttempt* FindSettled(int64_t step, uint32_t attempt) const;
  const StoredAttempt* Find(const CheckpointKey& key) const;
  // Returns whether there is an outcome of a later attempt of the step.
  bool HasLater(int64_t step, uint32_t attempt) const;

  // It is remembered that the step is committed. Does storage still say so? Answers nothing while the step is being
  // read. `caller` asks again until it is answered, and gets what was read after it had first asked.
  std::optional<bool> StillCommitted(int64_t step, const std::string& caller, const JobContext& context);
  // Returns whether `caller` was told that the step is committed. It stays told so, though the step may have gone
  // since.
  bool WasRefused(int64_t step, const std::string& caller) const;
  // Reads an outcome again that could not be read. `caller` asks for it.
  void ReadUnsettled(int64_t step, uint32_t attempt, const std::string& caller, const JobContext& context);
  // Takes the result of a ReadStep. Returns false if it is not the one that was waited for.
  bool OnRead(int64_t step, uint64_t ticket, const absl::StatusOr<StoredAttempts>& read, const JobContext& context);
  // STORAGE_STALLED if the step has been read for too long; else OK.
  absl::Status ReadStalled(int64_t step, const JobContext& context) const;
  void Forget(absl::Time now);

 private:
  using Outcomes = std::map<std::pair<int64_t, uint32_t>, StoredAttempt>;  // by step and attempt

  JobLineage MakeLineage() const;
  // Returns the outcomes so that they can be changed, and forgets what followed from them.
  Outcomes& Change() {
    lineage_stale_ = true;
    return outcomes_;
  }

  // Reads one step again.
  struct Read {
    uint64_t ticket = 0;  // of the read under way
    absl::Time begun;
    std::set<std::string> waiting;   // for the next read
    std::set<std::string> asking;    // for the one under way
    std::set<std::string> answered;  // the step is still committed
    absl::Time answered_time = absl::InfinitePast();
  };

  static void Begin(int64_t step, Read& read, const JobContext& context);

  Outcomes outcomes_;
  // Followed from the outcomes when it was asked for last.
  mutable JobLineage lineage_;
  mutable std::shared_ptr<const KnownSteps> known_steps_ = std::make_shared<const KnownSteps>();
  mutable bool lineage_stale_ = false;
  std::map<int64_t, Read> reads_;  // by step
  // If an outcome could not be read, it is read again for those who ask, but not before this time.
  absl::Time next_unsettled_read_ = absl::InfinitePast();
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_OUTCOME_BOOK_H_
