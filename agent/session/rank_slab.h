// The one slab of the agent: whether it is there, how large, who may write it, why there is none, and what it still
// holds of the last committed save.
#ifndef CAIRN_AGENT_SESSION_RANK_SLAB_H_
#define CAIRN_AGENT_SESSION_RANK_SLAB_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/session/kept_save.h"
#include "agent/session/session_context.h"
#include "agent/session/slab_use.h"

namespace cairn {

// Not thread-safe.
class RankSlab {
 public:
  // `context` must outlive it.
  explicit RankSlab(SessionContext& context) : context_(context) {}

  // Returns nothing while there is no slab.
  const std::optional<SlabDescription>& made() const { return made_; }
  SlabUse& use() { return use_; }

  // True if the slab is free for this trainer and large enough; else asks for one. `held`: a save uses the one that is
  // there. Errors: why it cannot be made, told once to each trainer that wants it.
  absl::StatusOr<bool> Want(uint64_t bytes, uint64_t trainer, bool held);
  // The answer to MakeSlab. An error concerns nobody if the trainer that asked is not `attached` any more.
  void OnMade(absl::StatusOr<SlabDescription> slab, std::optional<uint64_t> attached);
  void ForgetError() { error_ = absl::OkStatus(); }

  // A save that has got the slab by Want may be told where it is. False: a load still copies from it. It is made to
  // stop, and OnGivenUp follows.
  bool Open();
  void OnGivenUp();

  // --- What loads may copy from it, until the next save opens it or another slab takes its place.

  // A save has been committed, and this slab holds its files.
  void Keep(KeptSave kept);
  // Returns what a load of this trainer may copy from now; null if there is nothing, or if somebody else may still
  // write.
  KeptSavePtr KeptFor(uint64_t trainer) const;
  // Returns why there is nothing although something is kept; else empty.
  std::string RefusalFor(uint64_t trainer) const;
  // A load copies from it, and does not any more.
  void BeginReading(uint64_t load) { readers_.insert(load); }
  void EndReading(uint64_t load) { readers_.erase(load); }

 private:
  void StopReaders();

  SessionContext& context_;
  std::optional<SlabDescription> made_;
  bool making_ = false;
  SlabUse use_;
  KeptSavePtr kept_;
  std::set<uint64_t> readers_;  // loads that copy from it
  bool giving_up_ = false;      // they were told to stop
  // Why a slab of this many bytes could not be made for this trainer; tried again when its next save begins.
  absl::Status error_;
  uint64_t error_bytes_ = 0;
  uint64_t asker_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_RANK_SLAB_H_
