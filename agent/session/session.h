// The agent's decisions: merges what the trainer asks, what the coordinator orders and what writer and reader report
// into the state that goes to the coordinator, and says what is to be done. No thread, clock, file or socket in it: a
// function of (state, event, now). The shell (agent/runtime/agent.h) feeds events and carries out the actions.
//
// The session itself knows the coordinator and the trainer: who is registered and attached, which layouts there are,
// the agreement on a step. Saves and loads have classes of their own (rank_saves.h, rank_loads.h), which share what
// was planned (rank_plans.h); the slab is that of rank_slab.h.
#ifndef CAIRN_AGENT_SESSION_SESSION_H_
#define CAIRN_AGENT_SESSION_SESSION_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/session/action.h"
#include "agent/session/device_share.h"
#include "agent/session/known_layouts.h"
#include "agent/session/rank_layout.h"
#include "agent/session/rank_loads.h"
#include "agent/session/rank_plans.h"
#include "agent/session/rank_saves.h"
#include "agent/session/rank_slab.h"
#include "agent/session/session_context.h"
#include "agent/session/slab_use.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/local_agent_service.pb.h"

namespace cairn {

// A call of the trainer that cannot be answered yet is answered with `pending`; the shell asks again with the same
// arguments whenever something has changed, and gives the trainer the pending answer when max_wait is over.
// Not thread-safe.
class Session {
 public:
  explicit Session(SessionOptions options) : context_(std::move(options)) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Everything to be done since the last call, in order.
  std::vector<Action> TakeActions() { return std::exchange(context_.actions, {}); }
  // Grows whenever something changed that the coordinator should hear of at once (not by mere progress).
  uint64_t version() const { return context_.version; }
  // True while progress is worth reporting more often than the lease needs.
  bool active() const { return !saves_.empty() || loads_.active(); }

  // The writer and the reader report to these directly.
  RankSaves& saves() { return saves_; }
  RankLoads& loads() { return loads_; }

  // --- With the coordinator.

  bool registered() const { return context_.registered; }
  // After this time without a word an agent counts as lost; zero while the coordinator was not heard of.
  absl::Duration lease_ttl() const { return lease_ttl_; }
  v1::AgentIdentity Identity() const;
  // ABORTED (STALE_EPOCH): the answer comes from a coordinator older than one that was heard before; it is not obeyed.
  absl::Status OnRegistered(const v1::RegisterAgentResponse& response);
  // The coordinator does not know this agent any more. Saves and loads in flight are kept and told to it again.
  void OnUnregistered();
  // A call to the coordinator has failed: trainers that wait for it are told (`stalled` of their answers), until orders
  // come again.
  void OnLinkFailed(const absl::Status& error, absl::Time now) { context_.trouble.Failed(error, now); }
  // One that began at `since` has had no answer when it should have; see LinkTrouble::Silent.
  void OnLinkSilent(const absl::Status& error, absl::Time since, absl::Time now) {
    context_.trouble.Silent(error, since, now);
  }
  // The state to send. Orders that come back are understood as an answer to the last one that was built.
  v1::SynchronizeAgentRequest BuildRequest(std::optional<int64_t> current_step);
  // Errors as OnRegistered.
  absl::Status OnOrders(const v1::SynchronizeAgentResponse& response);
  // If the coordinator has no room for it, the calls that wait for it fail.
  void OnLayoutPut(const std::string& digest, const absl::Status& status);
  void OnPlan(const std::string& digest, absl::StatusOr<std::string> bytes);
  void OnPeers(const std::vector<uint32_t>& ranks, const absl::StatusOr<v1::GetTransferPeersResponse>& answer);
  void OnControlPage(uint64_t number, v1::ArmState::Status status);
  // The groups that this rank builds or is in now.
  void OnGroups(std::vector<v1::GroupState> groups);
  // Ends what has passed its deadline.
  void OnTick(absl::Time now) {
    saves_.OnTick(now);
    devices_.Advance();
  }

  // --- With the trainer. Errors are those of LocalAgentService.

  // Checks whether this trainer may have the rank. `previous_agent` is the incarnation of the agent to which it was
  // attached last, or 0: only a trainer that is new may take another one's place. ABORTED (STALE_INCARNATION).
  absl::Status CheckAttach(uint64_t trainer, uint64_t previous_agent) const;
  // ALREADY_EXISTS (RANK_CONFLICT), FAILED_PRECONDITION (WORLD_SIZE_MISMATCH): the trainer says that it is another
  // rank, or of a job with another number of ranks.
  absl::Status CheckPlace(const v1::TrainerPlace& place) const;
  // Gives the rank to this trainer in place of the one that is attached. CheckAttach must have allowed it.
  void Attach(uint64_t trainer);
  // Says how the trainer's process stands now.
  void OnTrainerProcess(uint64_t trainer, v1::JobRank::TrainerProcess process);
  // Is called when a trainer has ended or detached, also one that was replaced. Staged saves go on.
  void OnTrainerGone(uint64_t trainer, TrainerEnd how);
  // FAILED_PRECONDITION (NOT_REGISTERED): no trainer is attached. ABORTED (STALE_INCARNATION): another one has taken
  // its place.
  absl::Status CheckAttached(uint64_t trainer) const;
  std::optional<uint64_t> attached_trainer() const { return trainer_; }
  // Makes a layout known, so that calls may name it by digest. It is kept as long as the trainer, a save or a load that
  // goes on has it, and a few more for calls to come.
  void AddLayout(RankLayoutPtr layout);
  bool KnowsLayout(const std::string& digest) const { return layouts_.Find(digest) != nullptr; }

 private:
  absl::StatusOr<v1::PrepareResponse> Answer(const v1::PrepareRequest& request, absl::Time now);
  absl::StatusOr<v1::BeginSaveResponse> Answer(const v1::BeginSaveRequest& request, absl::Time now);
  absl::Status Answer(const v1::CommitStagingRequest& request, absl::Time now);
  absl::StatusOr<v1::WaitSaveResponse> Answer(const v1::WaitSaveRequest& request, absl::Time now);
  absl::Status Answer(const v1::CancelSaveRequest& request, absl::Time now);
  absl::StatusOr<v1::OfferDeviceMemoryResponse> Answer(const v1::OfferDeviceMemoryRequest& request, absl::Time now);
  absl::StatusOr<v1::CopyFromDeviceResponse> Answer(const v1::CopyFromDeviceRequest& request, absl::Time now);
  absl::StatusOr<v1::BeginLoadResponse> Answer(const v1::BeginLoadRequest& request, absl::Time now);
  absl::Status Answer(const v1::CommitSourceRequest& request, absl::Time now);
  absl::StatusOr<RankLoads::Receiving> Answer(const v1::ReceiveLoadRequest& request, absl::Time now);
  absl::StatusOr<v1::EndLoadResponse> Answer(const v1::EndLoadRequest& request, absl::Time now);

 public:
  // Answers a call of the trainer, if that is attached (CheckAttached). It finds the layouts; the rest is said at
  // RankSaves, RankLoads and DeviceShare.
  template <typename Request>
  auto Ask(const Request& request, absl::Time now) -> decltype(Answer(request, now)) {
    if (absl::Status refused = CheckAttached(request.trainer_incarnation()); !refused.ok()) return refused;
    return Answer(request, now);
  }

  // --- With the trainer's GPUs. As the events of DeviceShare.

  void OnOfferOpened(uint64_t offer, uint64_t descriptor_id) { devices_.OnOfferOpened(offer, descriptor_id); }
  void OnOfferTaken(uint64_t offer, const absl::Status& status) { devices_.OnOfferTaken(offer, status); }
  void OnDeviceCopied(uint64_t copy, absl::StatusOr<DeviceCopied> copied);

  // --- With the slab.

  void OnSlab(absl::StatusOr<SlabDescription> slab);
  // No load copies from it any more.
  void OnSlabGivenUp();

 private:
  absl::Status CheckEpoch(uint64_t epoch) const;
  absl::StatusOr<v1::PrepareResponse> GoOnPreparing(const v1::PrepareRequest& request, const RankLayoutPtr& layout);
  absl::Status Replaced() const;
  absl::Status Lost(TrainerEnd how, std::string_view when) const;
  void ApplyArm(const v1::ArmOrder& order);
  void ApplyGroups(const v1::SynchronizeAgentResponse& response);
  // A call of the trainer that has not been made before names the layout.
  void NameLayout(const std::string& digest);
  // Takes every step that has become possible.
  void Advance();

  SessionContext context_;
  absl::Duration lease_ttl_;
  uint64_t known_revision_ = 0;
  uint64_t sequence_ = 0;
  absl::Status current_plan_error_;
  // What the last request said, which the orders answer.
  std::string told_layout_;
  uint64_t told_prepare_call_ = 0;
  uint64_t known_prepare_call_ = 0;  // to the coordinator, when it gave the last orders

  std::optional<uint64_t> trainer_;
  uint64_t last_trainer_ = 0;      // that was attached, though it may have ended; 0 for none
  std::deque<uint64_t> replaced_;  // trainers whose place another one has taken, the newest last
  v1::JobRank::TrainerProcess process_ = v1::JobRank::TRAINER_PROCESS_UNSPECIFIED;  // of the attached trainer
  std::string trainer_layout_;
  uint64_t prepare_call_ = 0;  // the last one of this trainer, by its count
  bool preparing_ = false;     // the trainer waits in it
  v1::ArmState arm_;
  std::vector<v1::GroupState> groups_;
  // The orders about groups that were followed last, as bytes.
  std::string followed_groups_;

  KnownLayouts layouts_;
  // Layouts whose upload has begun, and those of them whose upload has ended since the last request was built: the
  // answer to that request may still ask for them.
  std::set<std::string> puts_;
  std::set<std::string> ended_puts_;
  // Layouts for which the coordinator has no room, and what it said. They are not uploaded again before a call of the
  // trainer names them.
  std::map<std::string, absl::Status> refused_puts_;
  RankPlans plans_{context_};
  RankSlab slab_{context_};
  RankSaves saves_{context_, plans_, slab_};
  RankLoads loads_{context_, plans_, slab_};
  DeviceShare devices_{context_, saves_, slab_};
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_SESSION_H_
