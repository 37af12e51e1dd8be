// The agent's decisions: merges what the trainer asks, what the coordinator orders and what writer and reader report
// into the state that goes to the coordinator, and says what is to be done. No thread, clock, file or socket in it: a
// function of (state, event, now). The shell (agent/runtime/agent.h) feeds events and carries out the actions.
//
// A save:                                   A load:
//   BEGUN -> STAGING -> STAGED -> WRITING     BEGUN -> READING -> DONE
//     |         |          |         |          |         |
//     +---------+----------+---------+-> WRITTEN (saves)  +-> FAILED -> STOPPED
//     +-> FAILED (own reason) -> STOPPED (ordered to abort) -> verdict: told to the trainer and forgotten
#ifndef CAIRN_AGENT_SESSION_SESSION_H_
#define CAIRN_AGENT_SESSION_SESSION_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/session/asked_saves.h"
#include "agent/session/link_trouble.h"
#include "agent/session/peer_book.h"
#include "agent/session/rank_layout.h"
#include "agent/session/replica_check.h"
#include "agent/session/save_image.h"
#include "agent/session/slab_use.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/local_agent_service.pb.h"
#include "cairn/v1/plan.pb.h"
#include "common/status/status_proto.h"

namespace cairn {

using ReadPlanPtr = std::shared_ptr<const v1::ReadPlan>;

// What the shell is to do. Each is answered by the event named.
namespace action {

// Upload a layout that the coordinator lacks. -> OnLayoutPut
struct PutLayout {
  RankLayoutPtr layout;
};
// Fetch this rank's part of a plan. -> OnPlan
struct GetPlan {
  std::string digest;
  // The part that this rank had last: if it has the same to do, nothing need be sent. Empty for none.
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
// Write the bins of `target` below the root's `directory`, taking the items from where `staged` has them in the slab.
// -> OnWriteProgress, then OnWriteEnded
struct StartWrite {
  uint64_t save = 0;
  int64_t step = 0;
  uint32_t attempt = 0;
  std::string directory;
  SaveImagePtr staged;
  SaveImagePtr target;
  std::vector<uint64_t> object_bytes;
  // Has the secret for what is moved in; what is moved out is lent to whoever has it.
  v1::SaveOrder order;
  // Those whose shards are moved in. One that no agent holds is missing.
  PeerMap peers;
};
// Nobody needs this save's slab any more: what was lent of it is taken back.
struct EndLending {
  uint64_t save = 0;
};
// Stop the writer of this save; its files are removed unless all were complete. -> OnWriteEnded
struct StopWrite {
  uint64_t save = 0;
};
// Write into the control page. -> OnControlPage
struct ControlPage {
  v1::ArmOrder order;
};
// Read, and deliver to this rank and to others. -> OnReadProgress, OnReadFailed
struct StartRead {
  uint64_t number = 0;
  uint64_t trainer = 0;  // whose load it is: its successor counts from 1 again
  ReadPlanPtr plan;
  v1::LoadOrder order;
  // The other ranks that bytes come from. One that no agent holds is missing.
  PeerMap peers;
  // Set for a reshard, null for a load: the image of the memory that the trainer fills and this agent lends, in place
  // of files. -> also OnSource
  SaveImagePtr source;
};
// The trainer has copied its source of a reshard: it may be lent.
struct LendSource {
  uint64_t number = 0;
};
// Free all that a load holds. -> OnReadStopped
struct StopRead {
  uint64_t number = 0;
};

}  // namespace action

using Action =
    std::variant<action::PutLayout, action::GetPlan, action::GetPeers, action::MakeSlab, action::StartWrite, action::EndLending,
                 action::StopWrite, action::ControlPage, action::StartRead, action::LendSource, action::StopRead>;

struct SessionOptions {
  std::string job;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint64_t incarnation = 0;
  uint64_t memory_budget = 0;
  uint64_t round_bytes = 0;
};

struct SlabDescription {
  uint64_t descriptor_id = 0;
  uint64_t bytes = 0;
};

// A call of the trainer that cannot be answered yet is answered with `pending`; the shell asks again with the same
// arguments whenever something has changed, and gives the trainer the pending answer when max_wait is over.
// Not thread-safe.
class Session {
 public:
  explicit Session(SessionOptions options);

  // Everything to be done since the last call, in order.
  std::vector<Action> TakeActions();
  // Grows whenever something changed that the coordinator should hear of at once (not by mere progress).
  uint64_t version() const { return version_; }
  // True while progress is worth reporting more often than the lease needs.
  bool active() const;

  // --- With the coordinator.

  bool registered() const { return registered_; }
  // After this time without a word an agent counts as lost; zero while the coordinator was not heard of.
  absl::Duration lease_ttl() const { return lease_ttl_; }
  v1::AgentIdentity Identity() const;
  // ABORTED (STALE_EPOCH): the answer comes from a coordinator older than one that was heard before; it is not obeyed.
  absl::Status OnRegistered(const v1::RegisterAgentResponse& response);
  // The coordinator does not know this agent any more. Saves and loads in flight are kept and told to it again.
  void OnUnregistered();
  // A call to the coordinator has failed: trainers that wait for it are told (`stalled` of their answers), until orders
  // come again.
  void OnLinkFailed(const absl::Status& error, absl::Time now) { link_trouble_.Failed(error, now); }
  // The state to send. Orders that come back are understood as an answer to the last one that was built.
  v1::SynchronizeAgentRequest BuildRequest(std::optional<int64_t> current_step);
  // Errors as OnRegistered.
  absl::Status OnOrders(const v1::SynchronizeAgentResponse& response, absl::Time now);
  void OnLayoutPut(const std::string& digest, const absl::Status& status);
  void OnPlan(const std::string& digest, absl::StatusOr<std::string> bytes, absl::Time now);
  void OnPeers(const std::vector<uint32_t>& ranks, const absl::StatusOr<v1::GetTransferPeersResponse>& answer);
  void OnControlPage(uint64_t number, v1::ArmState::Status status);
  // Deadlines.
  void OnTick(absl::Time now);

  // --- With the trainer. Errors are those of LocalAgentService.

  // Whether this trainer may have the rank. `previous_agent`: the incarnation of the agent that it was attached to
  // last, 0 if it never was: only a trainer that is new may take another one's place. ABORTED (STALE_INCARNATION).
  absl::Status CheckAttach(uint64_t trainer, uint64_t previous_agent) const;
  // After CheckAttach. Takes the place of the trainer that is attached.
  void Attach(uint64_t trainer);
  // The trainer has ended or detached, also one that is not attached any more. What is staged goes on.
  void OnTrainerGone(uint64_t trainer, TrainerEnd how);
  // FAILED_PRECONDITION (NOT_REGISTERED); ABORTED (STALE_INCARNATION) if another trainer has taken its place.
  absl::Status CheckAttached(uint64_t trainer) const;
  std::optional<uint64_t> attached_trainer() const { return trainer_; }
  // Makes a layout known, so that calls may name it by digest.
  void AddLayout(RankLayoutPtr layout);
  bool KnowsLayout(const std::string& digest) const { return layouts_.contains(digest); }

  absl::StatusOr<v1::PrepareResponse> Prepare(const v1::PrepareRequest& request, absl::Time now);
  absl::StatusOr<v1::BeginSaveResponse> BeginSave(const v1::BeginSaveRequest& request, absl::Time now);
  absl::Status CommitStaging(const v1::CommitStagingRequest& request, absl::Time now);
  absl::StatusOr<v1::WaitSaveResponse> WaitSave(const v1::WaitSaveRequest& request);
  absl::Status CancelSave(const v1::CancelSaveRequest& request, absl::Time now);
  absl::StatusOr<v1::BeginLoadResponse> BeginLoad(const v1::BeginLoadRequest& request);
  // Ends the staging of a reshard's source.
  absl::Status CommitSource(const v1::CommitSourceRequest& request);
  // OK while the load may still give batches; its error otherwise.
  absl::Status CheckLoad(uint64_t trainer, uint64_t number) const;
  // True when the load's verdict is known: nothing more comes.
  bool LoadHasEnded(uint64_t number) const;
  absl::StatusOr<v1::EndLoadResponse> EndLoad(const v1::EndLoadRequest& request);
  // True while a staged save has no verdict: what a drain waits for.
  bool HoldsStagedSaves() const;

  // --- With slab, writer and reader.

  void OnSlab(absl::StatusOr<SlabDescription> slab, absl::Time now);
  // `waiting_for`: ranks that have not staged what this one writes for them.
  void OnWriteProgress(uint64_t save, uint64_t bytes_done, std::vector<uint32_t> waiting_for = {});
  void OnWriteEnded(uint64_t save, absl::StatusOr<v1::WriteResult> result);
  struct ReadProgress {
    uint64_t bytes_done = 0;
    uint64_t storage_bytes = 0;
    v1::IoPath io_path = v1::IO_PATH_UNSPECIFIED;
    bool all_read = false;
  };
  // The memory for a reshard's source.
  void OnSource(uint64_t number, SlabDescription memory);
  void OnReadProgress(uint64_t number, const ReadProgress& progress);
  void OnReadFailed(uint64_t number, const absl::Status& status);
  void OnReadStopped(uint64_t number);

 private:
  struct Save {
    uint64_t id = 0;
    int64_t step = 0;
    uint64_t call = 0;
    uint64_t trainer = 0;
    RankLayoutPtr layout;
    bool allow_dropped_names = false;
    // This step was committed once: only the coordinator, who asks storage, knows whether that stands.
    bool ask_first = false;
    absl::Time stage_deadline = absl::InfiniteFuture();
    // Until then the coordinator may say for whom this rank has waited in vain; its trainer is told nothing before.
    absl::Time blame_deadline = absl::InfinitePast();
    v1::SaveState::Phase phase = v1::SaveState::BEGUN;
    // The plan by which the slab was opened, and the one to write by: they differ if another rank's layout changed.
    SaveImagePtr staged;
    SaveImagePtr target;
    ReplicaChecklist checklist;  // when STAGING or later
    std::vector<uint64_t> object_bytes;
    std::vector<v1::ReplicaChecksum> replica_checksum;
    v1::SaveOrder order;
    uint32_t attempt = 0;
    uint64_t attempt_nonce = 0;
    std::string request_id;
    // The attempt of the writer that ran or runs, and how far it is.
    uint32_t write_attempt = 0;
    uint64_t write_nonce = 0;
    uint64_t bytes_done = 0;
    std::vector<uint32_t> waiting_for;
    v1::WriteResult result;
    absl::Status error;
    // The trainer has been given the error: its next BeginSave is a new call, which waits until this one has its
    // verdict.
    bool told = false;
    struct NextCall {
      uint64_t trainer = 0;
      absl::Time deadline;
    };
    std::optional<NextCall> next_call;
  };
  struct EndedSave {
    uint64_t id = 0;
    int64_t step = 0;
    uint64_t trainer = 0;
    // It ended before this trainer had staged and the trainer does not know yet.
    bool untold = false;
    absl::Status error;
    v1::Checkpoint checkpoint;
  };
  struct Load {
    uint64_t number = 0;
    uint64_t trainer = 0;
    std::optional<int64_t> wanted_step;
    RankLayoutPtr layout;
    // Set for a reshard, null for a load: what this rank holds, what it lends of that, and where the trainer copies it.
    RankLayoutPtr source_layout;
    SaveImagePtr source_image;
    std::optional<SlabDescription> source_memory;
    bool source_staged = false;
    bool fallback = false;
    bool strict = true;
    v1::LoadState::Phase phase = v1::LoadState::BEGUN;
    v1::LoadOrder order;
    // This rank's part of the plan when it has come, and the other ranks that it names as sources.
    ReadPlanPtr fetched;
    std::vector<uint32_t> sources;
    ReadPlanPtr plan;      // the same, once it is read by
    bool reading = false;  // the shell holds something for it
    bool stopping = false;
    bool all_read = false;
    bool consumed = false;
    bool ended = false;  // ordered DONE (the totals stand in `order`) or FAILED: layouts, plan and image are let go
    uint64_t read_bytes = 0;  // by its plan
    uint64_t bytes_done = 0;
    uint64_t storage_bytes = 0;
    v1::IoPath io_path = v1::IO_PATH_UNSPECIFIED;
    absl::Status error;
  };

  void Changed() { ++version_; }
  void Do(Action action) { actions_.push_back(std::move(action)); }
  absl::Status CheckEpoch(uint64_t epoch) const;
  absl::Status Replaced() const;
  void ForgetOldLayouts();
  Save* FindSave(int64_t step);
  Save* FindSaveById(uint64_t id);
  Load* FindLoad(uint64_t number);
  absl::Status BadLoad(uint64_t number, std::string_view what) const;

  void ApplyArm(const v1::ArmOrder& order);
  void ApplySave(const v1::SaveOrder& order, absl::Time now);
  void ApplyLoad(const v1::LoadOrder& order);
  void EndSave(Save& save, const v1::SaveOrder& verdict);
  // `error`: of one that was aborted.
  v1::Checkpoint CheckpointOf(const v1::SaveOrder& verdict, const absl::Status& error) const;
  // Answers for a save that this agent does not know what the coordinator says of its attempt.
  v1::WaitSaveResponse AskFor(const v1::WaitSaveRequest& request);
  // Whether a call for the step of `save` is not the one that began it, repeated, nor may take its place. One that was
  // given up without a word is ended.
  bool IsNextCall(Save& save, const v1::BeginSaveRequest& request);
  // SAVE_IN_PROGRESS, or what keeps the agent from its coordinator, if too many failed saves wait to be heard of.
  absl::Status CheckRoom() const;
  void Fail(Save& save, absl::Status error);
  void Fail(Load& load, absl::Status error);
  void StopReading(Load& load);
  void End(Load& load);
  // Room for one more.
  void ForgetEndedLoads();

  // An answer that there is none yet, with what keeps the agent from its coordinator.
  template <typename Response>
  void SetPending(Response& response) const {
    response.set_pending(true);
    if (!link_trouble_.status().ok()) *response.mutable_stalled() = StatusToProto(link_trouble_.status());
  }

  // Takes every step that has become possible.
  void Advance();
  void AdvanceSave(Save& save);
  void AdvanceLoad(Load& load);
  // Parses the load's part of its plan. INTERNAL: it is another one.
  absl::Status TakeReadPlan(Load& load, const std::string& bytes);
  // The bytes of a plan if they are there; else asks for them. `known`: the digest of a plan whose part may be the
  // same.
  const std::string* WantPlan(const std::string& digest, const std::string& known = "");
  // The image of a plan for this layout; null while the plan is being fetched.
  absl::StatusOr<SaveImagePtr> WantImage(const std::string& plan_digest, const RankLayoutPtr& layout);
  // The agents of these ranks, as far as there are any; nothing while the coordinator is asked.
  std::optional<PeerMap> WantPeers(const std::vector<uint32_t>& ranks);
  // True if the slab is free for this trainer and large enough; else asks for one. Errors: why it cannot be made.
  absl::StatusOr<bool> WantSlab(uint64_t bytes, uint64_t trainer);
  bool SlabIsHeld() const;
  // STORAGE_STALLED if it is storage that keeps `waiting` from being staged; else OK.
  absl::Status StalledStorage(const Save& waiting) const;
  v1::SaveState StateOf(const Save& save) const;
  v1::LoadState StateOf(const Load& load) const;

  const SessionOptions options_;
  std::vector<Action> actions_;
  uint64_t version_ = 1;

  bool registered_ = false;
  absl::Duration lease_ttl_;
  uint64_t coordinator_epoch_ = 0;  // the highest heard of
  uint64_t known_revision_ = 0;
  uint64_t sequence_ = 0;
  std::string current_plan_digest_;
  bool current_plan_checks_replicas_ = false;
  bool current_plan_samples_replicas_ = false;
  absl::Status current_plan_error_;
  LinkTrouble link_trouble_;
  // What the last request told of, which the orders answer.
  std::map<int64_t, uint64_t> told_saves_;   // step -> id
  std::map<uint64_t, uint64_t> told_loads_;  // number -> trainer
  std::string told_layout_;

  std::optional<uint64_t> trainer_;
  uint64_t last_trainer_ = 0;      // that was attached, though it may have ended; 0 for none
  std::deque<uint64_t> replaced_;  // trainers whose place another one has taken, the newest last
  std::string trainer_layout_;
  v1::ArmState arm_;

  std::map<std::string, RankLayoutPtr> layouts_;
  std::deque<std::string> layout_order_;      // the one that was named last is the last
  std::set<std::string> puts_;                // layouts being uploaded
  std::map<std::string, std::string> plans_;  // fetched: serialized WritePlan or ReadPlan
  std::deque<std::string> plan_order_;
  std::set<std::string> gets_;                  // plans being fetched
  std::map<std::string, SaveImagePtr> images_;  // of plans_, by plan digest

  // The newest image that an order or a prepare gave: what the next save of its layout follows unasked.
  SaveImagePtr cached_;
  PeerBook peers_;
  std::optional<SlabDescription> slab_;
  bool making_slab_ = false;
  SlabUse slab_use_;
  // Why a slab of this many bytes could not be made for this trainer; tried again when its next save begins.
  absl::Status slab_error_;
  uint64_t slab_error_bytes_ = 0;
  uint64_t slab_asker_ = 0;
  // The save whose writer runs, though the save may have ended.
  std::optional<uint64_t> writer_;
  bool writer_stopping_ = false;

  // Saves have numbers that no other process of this rank gives: a trainer may ask the next agent for one of the last.
  uint64_t next_save_;
  uint64_t next_call_ = 1;
  // The first item that the next save may sample.
  uint32_t next_sample_ = 0;
  std::map<int64_t, Save> saves_;  // by step
  std::deque<EndedSave> ended_;
  AskedSaves asked_;
  std::map<uint64_t, Load> loads_;  // by number
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_SESSION_H_
