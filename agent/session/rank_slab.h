// The one slab of the agent: whether it is there, how large, who may write it, and why there is none.
#ifndef CAIRN_AGENT_SESSION_RANK_SLAB_H_
#define CAIRN_AGENT_SESSION_RANK_SLAB_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

 private:
  SessionContext& context_;
  std::optional<SlabDescription> made_;
  bool making_ = false;
  SlabUse use_;
  // Why a slab of this many bytes could not be made for this trainer; tried again when its next save begins.
  absl::Status error_;
  uint64_t error_bytes_ = 0;
  uint64_t asker_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_RANK_SLAB_H_
