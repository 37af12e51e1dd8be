// Checks what must hold of saves, whatever fails: simulations ask it after every event.
#ifndef CAIRN_COORDINATOR_JOB_TESTING_SAVE_INVARIANTS_H_
#define CAIRN_COORDINATOR_JOB_TESTING_SAVE_INVARIANTS_H_

#include <cstdint>
#include <set>
#include <string>

#include "cairn/v1/agent_coordination_service.pb.h"
#include "coordinator/decision/core_action.h"
#include "coordinator/job/testing/simulated_storage.h"

namespace cairn {

// Remembers what was committed and what ranks were told. Each question returns what is violated, in words, or "" if
// nothing is. Not thread-safe; `storage` must outlive it.
class SaveInvariants {
 public:
  SaveInvariants(const SimulatedStorage& storage, int world_size) : storage_(storage), world_size_(world_size) {}

  // An outcome was put and is the first one of its attempt. A commit has the files of all ranks, is the only one of its
  // step unless it may replace another, and contradicts nothing that a rank was told.
  std::string AfterPut(const StoredAttempt& outcome);
  // Files are about to be removed. Their attempt has an abort record, or was deleted because somebody asked for it.
  std::string BeforeRemove(const RemoveFiles& remove) const;
  // Whoever reads now finds only whole checkpoints, and one at least if there ever was one.
  std::string Readable() const;
  // A rank is told COMMITTED or ABORTED. It is the truth, and an abort has a reason and names the ranks that it is
  // about.
  std::string Told(int rank, const v1::SaveOrder& order);

  // An attempt of which no living coordinator knows: whoever asked for it is dead. Its files may stay.
  void Orphan(AttemptKey attempt) { orphans_.insert(attempt); }
  // At the end: what stands in no checkpoint was removed.
  std::string Tidy() const;

  // Returns how many steps were committed, and how many commits took the place of another.
  int commits() const { return static_cast<int>(committed_steps_.size()); }
  int replaced() const { return replaced_; }

 private:
  const SimulatedStorage& storage_;
  const int world_size_;
  std::set<int64_t> committed_steps_;
  std::set<AttemptKey> told_aborted_;
  std::set<AttemptKey> orphans_;
  int replaced_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_TESTING_SAVE_INVARIANTS_H_
