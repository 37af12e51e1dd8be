// One save of this rank, from the trainer's call to its outcome.
//
//          Open       Stage      StartWriting    EndWriting
//   BEGUN ------> STAGING --> STAGED -------> WRITING -----> WRITTEN
//                         <--         <-------
//                      StageAgain   StopWriting
//
// Its writer may run while it is STAGING already (StartWriting): it writes what is staged. Then Stage leads to WRITING.
//
// Fail leads from each of these to FAILED (a reason of this rank), and Abort from each to STOPPED (ordered to abort).
// An outcome ends it in any phase: it is told to the trainer, and the save is forgotten.
#ifndef CAIRN_AGENT_SESSION_RANK_SAVE_H_
#define CAIRN_AGENT_SESSION_RANK_SAVE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/session/rank_layout.h"
#include "agent/session/replica_check.h"
#include "agent/session/save_image.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/local_agent_service.pb.h"

namespace cairn {

// A pure function of calls. RankSaves finds it, and knows the slab, the plans and the writer. Not thread-safe.
class RankSave {
 public:
  struct Begin {
    uint64_t id = 0;
    uint64_t call = 0;
    // The trainer has staged by then, or the save fails.
    absl::Time deadline;
    // This step was committed once. Only the coordinator, which asks storage, knows whether that still stands.
    bool ask_first = false;
  };
  // The trainer has called.
  RankSave(const Begin& begin, const v1::BeginSaveRequest& request, RankLayoutPtr layout);
  // An attempt of before this process is ordered to abort. Nothing here touches it, and it is only told STOPPED.
  explicit RankSave(const v1::SaveOrder& abort);

  // The error of a save that is ordered to abort without a reason.
  static absl::Status Aborted(int64_t step);

  // --- The arrows. Each may be called in the phase from which the drawing shows it.

  // BEGUN -> STAGING. The slab is open for this image, which is also the one to write by.
  void Open(SaveImagePtr image, ReplicaChecklist checklist);
  // STAGING -> STAGED. Takes what the trainer says of its staged state: the lengths of its objects, and checksums.
  // INVALID_ARGUMENT (BAD_REQUEST): it does not fit the layout or the checklist.
  absl::Status Stage(const v1::CommitStagingRequest& request);
  // STAGED -> STAGING. The trainer has another state of this step, and nothing reads the first one yet.
  void StageAgain(absl::Time deadline);
  // STAGED, or WRITTEN in an earlier attempt -> WRITING, by the last order. In STAGING, the writer begins with what is
  // staged.
  void StartWriting();
  // The writer has ended without its files. WRITING -> STAGED, for the next attempt; FAILED if there is an error,
  // STOPPED if it is ordered to abort.
  void StopWriting();
  // WRITING -> WRITTEN. ABORTED (TORN_SNAPSHOT): an item was written that is not what the trainer's GPU held; then it
  // stays WRITING, and is to fail.
  absl::Status EndWriting(v1::WriteResult result);
  // Any -> FAILED, or STOPPED as before. The first error counts. While its writer runs, only StopWriting does that.
  void Fail(absl::Status why);
  // Any -> STOPPED; with `writing`, only StopWriting does that.
  void Abort(const v1::SaveOrder& order, bool writing);

  // --- In its phase.

  // Takes an order that lets it go on. Returns whether it is of another attempt than the one before.
  bool Obey(const v1::SaveOrder& order);
  void TakeRequestId(const v1::SaveOrder& order);
  // It is written by another plan than it was staged by, because another rank's layout changed.
  void Retarget(SaveImagePtr target) { target_ = std::move(target); }
  // Takes the CRC32C of items as the trainer's GPUs held them, which must be that of what is written.
  void TakeDeviceChecksums(const std::map<uint32_t, uint32_t>& checksums);
  // Returns whether it waits for other ranks than before.
  bool TakeProgress(uint64_t bytes_done, std::vector<uint32_t> waiting_for);
  // The writer was told how shards move.
  void TellWay(v1::Exchange::Way way) { way_ = way; }
  // The trainer is told no error until then, because the coordinator may still name the ranks that it has waited for.
  void AwaitNames(absl::Time until) { naming_deadline_ = until; }
  // The trainer has been given the error: its next BeginSave is a new call, which waits until this one has its outcome.
  void Told() { told_ = true; }
  // Lets the next call of this step wait. Returns false once it has waited for all its time.
  bool AwaitEnd(uint64_t trainer, absl::Duration timeout, absl::Time now);

  // --- What it is.

  // The trainer is told where to copy, by a number that no other save and no earlier answer has.
  void HandOut(uint64_t staging) { staging_ = staging; }
  // The trainer has called again, and may copy something else: nothing is written before it is told anew.
  void TakeBack() { staging_ = 0; }

  // The trainer has staged, and nothing has failed since.
  bool Staged() const;
  // True if what is staged may be written while the trainer copies the rest: it goes into the files as it lies in the
  // slab, and nothing moves between ranks.
  bool MayBeWrittenEarly() const;
  // True while its writer runs.
  bool writes() const { return writes_; }
  // What the trainer was told last; 0 for nothing.
  uint64_t staging() const { return staging_; }
  // True if the slab holds what the trainer stages or has staged.
  bool HoldsSlab() const;
  bool OrderedToGoOn() const;
  bool OrderedToAbort() const { return order_.phase() == v1::Phase::ABORTING; }
  // The ranks whose agents the writer speaks with, ascending: those whose shards the target takes in, and the one that
  // keeps the gate of an exchange.
  std::vector<uint32_t> Peers() const;
  // Says where the trainer copies what, and which checksums it makes.
  void AddPlacements(v1::BeginSaveResponse& response) const;
  // Returns what the coordinator is told.
  v1::SaveState State() const;

  uint64_t id() const { return begun_.save(); }  // 0 for an attempt of before this process
  int64_t step() const { return begun_.step(); }
  uint64_t call() const { return begun_.call(); }
  uint64_t trainer() const { return begun_.trainer_incarnation(); }
  bool ask_first() const { return ask_first_; }
  const RankLayoutPtr& layout() const { return layout_; }
  v1::Phase::Value phase() const { return phase_; }
  absl::Time stage_deadline() const { return stage_deadline_; }
  absl::Time naming_deadline() const { return naming_deadline_; }
  const SaveImagePtr& staged() const { return staged_; }
  const SaveImagePtr& target() const { return target_; }
  const ReplicaChecklist& checklist() const { return checklist_; }  // when STAGING or later
  const std::vector<uint64_t>& object_bytes() const { return object_bytes_; }
  const v1::SaveOrder& order() const { return order_; }
  uint32_t attempt() const { return attempt_; }
  const std::string& request_id() const { return request_id_; }
  // The attempt of the writer that runs now, or of the last one that ran; 0 if none did.
  uint32_t write_attempt() const { return write_attempt_; }
  // True if the last order is of that attempt.
  bool WrittenAsOrdered() const;
  v1::Exchange::Way way() const { return way_; }
  const v1::WriteResult& result() const { return result_; }
  const absl::Status& error() const { return error_; }
  bool told() const { return told_; }

 private:
  struct NextCall {
    uint64_t trainer = 0;
    absl::Time deadline;
  };

  v1::SaveState begun_;  // what State says of it from its beginning to its end
  RankLayoutPtr layout_;
  bool ask_first_ = false;
  absl::Time stage_deadline_ = absl::InfiniteFuture();
  absl::Time naming_deadline_ = absl::InfinitePast();
  v1::Phase::Value phase_ = v1::Phase::PLANNING;
  // The plan by which the slab was opened, and the one to write by.
  SaveImagePtr staged_;
  SaveImagePtr target_;
  ReplicaChecklist checklist_;
  std::vector<uint64_t> object_bytes_;
  std::vector<v1::ReplicaChecksum> replica_checksum_;
  std::map<uint32_t, uint32_t> device_checksum_;
  v1::SaveOrder order_;
  uint32_t attempt_ = 0;
  uint64_t attempt_nonce_ = 0;
  std::string request_id_;
  uint64_t staging_ = 0;
  bool writes_ = false;
  uint32_t write_attempt_ = 0;
  uint64_t write_nonce_ = 0;
  uint64_t bytes_done_ = 0;
  v1::Exchange::Way way_ = v1::Exchange::WAY_UNSPECIFIED;  // that the writer was told last for moved shards
  std::vector<uint32_t> waiting_for_;
  v1::WriteResult result_;
  absl::Status error_;
  bool told_ = false;
  std::optional<NextCall> next_call_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_RANK_SAVE_H_
