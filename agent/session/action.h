// Actions say what a session wants done. The shell carries them out, and tells the session what became of them.
#ifndef CAIRN_AGENT_SESSION_ACTION_H_
#define CAIRN_AGENT_SESSION_ACTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "agent/session/device_memory.h"
#include "agent/session/kept_save.h"
#include "agent/session/peer_book.h"
#include "agent/session/rank_layout.h"
#include "agent/session/save_image.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/plan.pb.h"

namespace cairn {

using ReadPlanPtr = std::shared_ptr<const v1::ReadPlan>;

// The shell answers each action by the event that its comment names.
namespace action {

// Upload a layout that the coordinator lacks. -> OnLayoutPut
struct PutLayout {
  RankLayoutPtr layout;
};
// Fetch this rank's part of a plan. -> OnPlan
struct GetPlan {
  std::string digest;
  // Names the part that this rank had last, so that nothing need be sent if it has the same to do. Empty for none.
  std::string known;
};
// Ask where the agents of these ranks are. -> OnPeers
struct GetPeers {
  std::vector<uint32_t> ranks;
};
// Make a pre-faulted slab of at least `bytes` in place of the one that is there. -> OnSlab
struct MakeSlab {
  uint64_t bytes = 0;
};
// Let no load copy from the slab any more: it is about to be written. Loads go on with files. -> OnSlabGivenUp
struct GiveUpSlab {};
// Write the bins of `target` below the root's `directory`, taking the items from where `staged` has them in the slab.
// `staging` is not 0 if the trainer still stages what it was told by this number: then what is staged is written, and
// the rest after EndStaging. -> OnWriteProgress, then OnWriteEnded
struct StartWrite {
  uint64_t save = 0;
  int64_t step = 0;
  uint32_t attempt = 0;
  std::string directory;
  SaveImagePtr staged;
  SaveImagePtr target;
  uint64_t staging = 0;
  std::vector<uint64_t> object_bytes;  // if it is staged
  // Has the secret for what is moved in; what is moved out is lent to whoever has it. Says how shards move, too.
  v1::SaveOrder order;
  // Those whose shards are moved in, and the one that keeps the gate of an exchange. One that no agent holds is
  // missing.
  PeerMap peers;
};
// The trainer has staged all of a save that is being written already.
struct EndStaging {
  uint64_t save = 0;
  std::vector<uint64_t> object_bytes;
};
// Nobody needs this save's slab any more: what was lent of it is taken back.
struct EndLending {
  uint64_t save = 0;
};
// Stop the writer of this save; its files are removed unless all were complete. -> OnWriteEnded
struct StopWrite {
  uint64_t save = 0;
};
// It is decided how a save's shards move that waited for that, or they go another way than was decided.
struct DecideMoves {
  uint64_t save = 0;
  v1::Exchange exchange;
};
// Write into the control page. -> OnControlPage
struct ControlPage {
  v1::ArmOrder order;
};
// Read, and deliver to this rank and to others. -> OnReadProgress, OnReadFailed
struct StartRead {
  uint64_t number = 0;
  ReadPlanPtr plan;
  v1::LoadOrder order;
  // The other ranks that bytes come from. One that no agent holds is missing.
  PeerMap peers;
  // Set for a reshard, null for a load: the image of the memory that the trainer fills and this agent lends, in place
  // of files.
  SaveImagePtr source;
  // Set if files of the plan still stand in the slab, where they are copied from. Null: `kept_refusal` says why they
  // are not, or is empty if none was there.
  KeptSavePtr kept = nullptr;
  std::string kept_refusal = {};
  // The trainer can read parts of files itself (BeginLoadRequest).
  bool reads_pieces = false;
};
// The trainer has copied its source of a reshard: it may be lent.
struct LendSource {
  uint64_t number = 0;
};
// It is decided how a load's bytes go that waited for that.
struct DecideExchange {
  uint64_t number = 0;
  v1::Exchange exchange;
};
// Build, keep and end groups, so that there are these alone. -> OnGroups
struct FollowGroups {
  std::vector<v1::GroupOrder> orders;
};
// Free all that a load holds. -> OnReadStopped
struct StopRead {
  uint64_t number = 0;
};

// Await the descriptors of these blocks of the trainer's GPUs. -> OnOfferOpened, then OnOfferTaken
struct AwaitDeviceMemory {
  uint64_t offer = 0;
  std::vector<DeviceBlock> blocks;
};
// Give these blocks back.
struct DropDeviceMemory {
  std::vector<uint64_t> blocks;
};
// Give all blocks back, and end the process that has them. A copy that it makes ends too. -> OnCopied, if one runs
struct EndDeviceMemory {};
// Copy from the trainer's GPUs to this slab, within the time; what is not a block yet is opened for that. -> OnCopied
struct CopyFromDevice {
  uint64_t copy = 0;
  uint64_t slab = 0;
  DeviceMemoryPartsPtr parts;
  std::vector<DeviceBlock> ipc;
  absl::Time deadline;
};
// Stop these copies, if need be by ending the process that makes them. -> OnCopied
struct StopDeviceCopy {
  uint64_t copy = 0;
};

}  // namespace action

using Action =
    std::variant<action::PutLayout, action::GetPlan, action::GetPeers, action::MakeSlab, action::StartWrite,
                 action::EndStaging, action::GiveUpSlab, action::EndLending, action::StopWrite, action::DecideMoves,
                 action::ControlPage, action::StartRead, action::LendSource, action::DecideExchange,
                 action::FollowGroups, action::StopRead, action::AwaitDeviceMemory, action::DropDeviceMemory,
                 action::EndDeviceMemory, action::CopyFromDevice, action::StopDeviceCopy>;

struct SlabDescription {
  uint64_t descriptor_id = 0;
  uint64_t bytes = 0;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_ACTION_H_
