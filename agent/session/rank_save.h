// One save of this rank, from the trainer's call to its outcome.
//
//   BEGUN -> STAGING -> STAGED -> WRITING
//     |         |          |         |
//     +---------+----------+---------+-> WRITTEN
//     +-> FAILED (own reason) -> STOPPED (ordered to abort) -> outcome: told to the trainer and forgotten
#ifndef CAIRN_AGENT_SESSION_RANK_SAVE_H_
#define CAIRN_AGENT_SESSION_RANK_SAVE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/session/rank_layout.h"
#include "agent/session/replica_check.h"
#include "agent/session/save_image.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/local_agent_service.pb.h"

namespace cairn {

// Holds what RankSaves keeps of one save. RankSaves makes the transitions.
struct RankSave {
  struct NextCall {
    uint64_t trainer = 0;
    absl::Time deadline;
  };

  // The error of a save that is ordered to abort without a reason.
  static absl::Status Aborted(int64_t step);

  // The trainer has staged, and nothing has failed since.
  bool Staged() const;
  // True if the slab holds what the trainer stages or has staged.
  bool HoldsSlab() const;
  bool OrderedToGoOn() const;
  // The first error counts.
  void Fail(absl::Status why);
  // The ranks whose agents the writer speaks with, ascending: those whose shards the target takes in, and the one that
  // keeps the gate of an exchange.
  std::vector<uint32_t> Peers() const;
  // Takes what the trainer says of its staged state: the lengths of its objects, and checksums.
  // INVALID_ARGUMENT (BAD_REQUEST): it does not fit the layout or the checklist.
  absl::Status TakeStaged(const v1::CommitStagingRequest& request);
  // ABORTED (TORN_SNAPSHOT): an item was written that is not what the trainer's GPU held.
  absl::Status CheckWritten(const v1::WriteResult& written) const;
  // Says where the trainer copies what, and which checksums it makes.
  void AddPlacements(v1::BeginSaveResponse& response) const;
  // Returns what the coordinator is told.
  v1::SaveState State() const;

  uint64_t id = 0;  // 0 for an attempt of before this process, which is only told STOPPED
  int64_t step = 0;
  uint64_t call = 0;
  uint64_t trainer = 0;
  RankLayoutPtr layout;
  bool allow_dropped_names = false;
  bool overwrite = false;
  std::optional<v1::ResumePoint> resumed_from;
  google::protobuf::RepeatedPtrField<v1::Metric> metrics;
  // True if this step was committed once. Only the coordinator, which asks storage, knows whether that still stands.
  bool ask_first = false;
  absl::Time stage_deadline = absl::InfiniteFuture();
  // The trainer is told nothing until then, because the coordinator may still name the ranks for which this one has
  // waited in vain.
  absl::Time naming_deadline = absl::InfinitePast();
  v1::SaveState::Phase phase = v1::SaveState::BEGUN;
  // The plan by which the slab was opened, and the one to write by: they differ if another rank's layout changed.
  SaveImagePtr staged;
  SaveImagePtr target;
  ReplicaChecklist checklist;  // when STAGING or later
  std::vector<uint64_t> object_bytes;
  std::vector<v1::ReplicaChecksum> replica_checksum;
  // The CRC32C of items as the trainer's GPUs held them, which must be that of what is written.
  std::map<uint32_t, uint32_t> device_checksum;
  v1::SaveOrder order;
  uint32_t attempt = 0;
  uint64_t attempt_nonce = 0;
  std::string request_id;
  // The attempt of the writer that runs now, or of the last one that ran, and how far it is.
  uint32_t write_attempt = 0;
  uint64_t write_nonce = 0;
  uint64_t bytes_done = 0;
  v1::Exchange::Way way = v1::Exchange::WAY_UNSPECIFIED;  // that the writer was told last for moved shards
  std::vector<uint32_t> waiting_for;
  v1::WriteResult result;
  absl::Status error;
  // The trainer has been given the error: its next BeginSave is a new call, which waits until this one has its outcome.
  bool told = false;
  std::optional<NextCall> next_call;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_RANK_SAVE_H_
