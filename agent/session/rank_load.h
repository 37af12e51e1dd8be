// One load or reshard of this rank, from the trainer's call to the coordinator's outcome.
//
//   BEGUN -> READING -> DONE
//     |         |
//     +---------+-> FAILED -> STOPPED
#ifndef CAIRN_AGENT_SESSION_RANK_LOAD_H_
#define CAIRN_AGENT_SESSION_RANK_LOAD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agent/session/action.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/local_agent_service.pb.h"
#include "common/rpc/transport_use.h"

namespace cairn {

// Gives the trainer its batches (agent/transport/load_consumer.h). The session hands it on, and calls nothing of it.
class LoadConsumer;

// The state of one load. RankLoads makes the transitions.
struct RankLoad {
  // True when the trainer can begin to receive.
  bool Begun() const;
  // The first error counts.
  void Fail(absl::Status why);
  // The coordinator has said how it ended: layouts, plan and image are let go.
  void End();
  // Takes this rank's part of the order's plan. INTERNAL: it is another one.
  absl::Status TakePlan(const std::string& bytes, uint32_t own_rank);
  // Tells the trainer how the load has begun, and how it has ended.
  void Describe(v1::BeginLoadResponse& response) const;
  void Describe(v1::EndLoadResponse& response) const;
  // Returns what the coordinator is told.
  v1::LoadState State() const;

  uint64_t number = 0;
  uint64_t trainer = 0;
  std::optional<int64_t> wanted_step;
  RankLayoutPtr layout;
  // Set for a reshard, null for a load: what this rank holds, what it lends of that, and where the trainer copies it.
  RankLayoutPtr source_layout;
  SaveImagePtr source_image;
  std::optional<SlabDescription> source_memory;
  bool source_staged = false;
  // Says what the slab still held when the trainer called. The coordinator is told that for as long as the load is: it
  // plans by that, and so does its successor. When the plan has come, it is decided anew whether the slab is used.
  KeptSavePtr kept;
  bool fallback = false;
  bool strict = true;
  v1::Phase::Value phase = v1::Phase::PLANNING;
  v1::LoadOrder order;
  // This rank's part of the plan when it has come, and the other ranks that it names as sources.
  ReadPlanPtr fetched;
  std::vector<uint32_t> sources;
  ReadPlanPtr plan;                        // the same, once it is read by
  bool reading = false;                    // the shell holds something for it
  std::shared_ptr<LoadConsumer> consumer;  // set while the trainer can receive
  bool stopping = false;
  bool all_read = false;
  bool consumed = false;
  bool ended = false;            // ordered DONE (the totals stand in `order`) or FAILED
  std::string exchange_refusal;  // why this rank cannot take part in an exchange; empty if it can
  uint64_t read_bytes = 0;       // by its plan
  uint64_t bytes_done = 0;
  uint64_t storage_bytes = 0;
  v1::IoPath io_path = v1::IO_PATH_UNSPECIFIED;
  TransportUse transport;
  absl::Status error;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_RANK_LOAD_H_
