// Who may still write into the slab. Memory that a process may still write is nobody else's image: a copy that was
// stopped before it began may run at any later time, so neither a save's end nor its trainer's absence frees the slab,
// only the trainer's word that it has unmapped it, or the certainty that its process has ended.
#ifndef CAIRN_AGENT_SESSION_SLAB_USE_H_
#define CAIRN_AGENT_SESSION_SLAB_USE_H_

#include <cstdint>

namespace cairn {

// Why a trainer is not attached any more.
enum class TrainerEnd {
  kEnded,     // its process is known to have ended
  kReplaced,  // another one has attached; its process may live
  kDetached,  // it said so; it may still have the slab mapped
  kUnmapped,  // it said so, and that it has no slab mapped any more
};

// Follows one slab, from when it is made. Trainers are given by incarnation. A trainer copies into one slab at a time
// and begins no save before its last copy has ended (local_agent_service.proto), so only others have to be kept apart.
class SlabUse {
 public:
  // Returns whether the next save may be this trainer's.
  bool AllowedTo(uint64_t trainer) const {
    if (agent_copies_ || (writer_ != 0 && writer_ != trainer)) return false;
    return !lent_ || mapped_;
  }

  // Returns whether nobody but this trainer can write into it. The trainer itself does not: its copies have ended, and
  // it was not told of the slab since.
  bool RestsFor(uint64_t trainer) const { return !agent_copies_ && (writer_ == 0 || writer_ == trainer); }

  // The trainer was told where the slab is.
  void HandOut(uint64_t trainer) {
    if (writer_ != trainer) mapped_ = false;
    writer_ = trainer;
  }
  // It has staged into it: it has it mapped.
  void Staged(uint64_t trainer) { mapped_ = mapped_ || writer_ == trainer; }
  // It gave a save up, perhaps because it could not map the slab.
  void GaveUp(uint64_t trainer) { mapped_ = mapped_ && writer_ != trainer; }
  // The slab is sealed: whoever has it not mapped yet cannot map it to write any more.
  void Lend() { lent_ = true; }
  // A process of the agent writes into it, from the trainer's GPUs.
  void AgentCopies() { agent_copies_ = true; }
  // It is known to do so no more, or to have ended.
  void AgentCopiesEnded() { agent_copies_ = false; }
  void TrainerGone(uint64_t trainer, TrainerEnd how) {
    if (writer_ != trainer) return;
    mapped_ = false;
    if (how == TrainerEnd::kEnded || how == TrainerEnd::kUnmapped) writer_ = 0;
  }

 private:
  uint64_t writer_ = 0;  // 0: nobody can write into it
  bool mapped_ = false;  // by the writer, which is attached
  bool lent_ = false;
  bool agent_copies_ = false;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_SLAB_USE_H_
