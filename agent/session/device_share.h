// Follows what the trainer shares with the agent of its GPUs' memory, and the copies that the agent makes from there.
#ifndef CAIRN_AGENT_SESSION_DEVICE_SHARE_H_
#define CAIRN_AGENT_SESSION_DEVICE_SHARE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/session/device_memory.h"
#include "agent/session/rank_saves.h"
#include "agent/session/rank_slab.h"
#include "agent/session/session_context.h"
#include "cairn/v1/local_agent_service.pb.h"

namespace cairn {

// It is a pure function of calls. All blocks are those of the trainer that is attached. Not thread-safe.
//
// A process of the agent writes into the slab only while a save is being staged. If that save ends before the copies
// do, they are stopped, and until they are known to have ended the slab is nobody's (SlabUse).
class DeviceShare {
 public:
  // All must outlive it.
  DeviceShare(SessionContext& context, RankSaves& saves, RankSlab& slab)
      : context_(context), saves_(saves), slab_(slab) {}

  // --- With the trainer, which is attached. Errors are those of LocalAgentService.

  absl::StatusOr<v1::OfferDeviceMemoryResponse> Offer(const v1::OfferDeviceMemoryRequest& request);
  absl::StatusOr<v1::CopyFromDeviceResponse> Copy(const v1::CopyFromDeviceRequest& request);
  // Returns whether the agent copies into the slab for this save.
  bool CopiesFor(uint64_t save) const { return running_.has_value() && copy_.save == save; }
  // The trainer is gone, or wants to share nothing any more: everything is given back.
  void End();

  // --- With the shell.

  // The trainer may send the descriptors of this offer.
  void OnOfferOpened(uint64_t offer, uint64_t descriptor_id);
  // The descriptors have come, and the blocks can be read; if not, the status says why.
  void OnOfferTaken(uint64_t offer, const absl::Status& status);
  // Nothing writes into the slab any more for this copy. After an error the shell has no blocks any more.
  void OnCopied(uint64_t copy, absl::StatusOr<DeviceCopied> copied);

  // Stops copies whose save is not being staged any more.
  void Advance();

 private:
  struct Offered {
    uint64_t number = 0;  // by the trainer's count
    uint64_t id = 0;
    std::vector<uint64_t> blocks;
    uint64_t descriptor_id = 0;  // 0: not opened yet
    bool taken = false;
  };
  struct Block {
    uint64_t bytes = 0;
    bool taken = false;
  };
  struct CopyState {
    uint64_t number = 0;  // by the trainer's count; 0 for none
    uint64_t id = 0;
    uint64_t save = 0;
    uint64_t trainer = 0;
    DeviceMemoryPartsPtr parts;
    bool ended = false;
    bool stopping = false;
    absl::Status error;
    v1::CopyFromDeviceResponse answer;
  };
  // Holds what a request names, once it is checked.
  struct Wanted {
    std::vector<DeviceMemoryPart> parts;
    std::vector<DeviceBlock> ipc;
    bool lost = false;     // a block is not known
    bool awaited = false;  // a block is not taken yet
  };

  void Drop(const v1::OfferDeviceMemoryRequest& request);
  void Forget();
  absl::StatusOr<Wanted> Read(const v1::CopyFromDeviceRequest& request, const RankSave& save);
  absl::StatusOr<v1::CopyFromDeviceResponse> Tell() const;
  absl::Status Bad(const std::string& what) const;
  // Gives the save the checksums of whole items.
  void TakeChecksums(const DeviceCopied& copied, RankSave& save);

  SessionContext& context_;
  RankSaves& saves_;
  RankSlab& slab_;
  uint64_t next_ = 1;             // the next id of an offer, a block or a copy
  bool shares_ = false;           // there is something to be ended
  std::optional<Offered> offer_;  // the last one
  std::map<uint64_t, Block> blocks_;
  std::string refused_;              // why the blocks were not taken, until the trainer has heard it
  CopyState copy_;                   // the last one
  std::optional<uint64_t> running_;  // the copy that the shell makes
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_DEVICE_SHARE_H_
