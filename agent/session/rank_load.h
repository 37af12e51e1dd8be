// One load or reshard of this rank, from the trainer's call to the coordinator's outcome.
//
//            StartReading       Complete
//   PLANNING ------------> READING ------> DONE
//       |                     |
//       +---------------------+--Fail--> FAILED --Abort, EndReading--> STOPPED
//
// Abort leads from the first two to STOPPED as well. An outcome ends it in any phase (End).
#ifndef CAIRN_AGENT_SESSION_RANK_LOAD_H_
#define CAIRN_AGENT_SESSION_RANK_LOAD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "agent/session/action.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/local_agent_service.pb.h"
#include "common/rpc/transport_use.h"

namespace cairn {

// Gives the trainer its batches (agent/transport/load_consumer.h). The session hands it on, and calls nothing of it.
class LoadConsumer;

// A pure function of calls. RankLoads finds it, and knows the slab, the plans and the reader. Not thread-safe.
class RankLoad {
 public:
  struct Started {
    std::optional<SlabDescription> source;  // of a reshard: where the trainer copies what this rank lends
    std::string exchange_refusal;           // see LoadState
    std::shared_ptr<LoadConsumer> consumer = nullptr;
  };
  struct Progress {
    uint64_t bytes_done = 0;
    uint64_t storage_bytes = 0;
    v1::IoPath io_path = v1::IO_PATH_UNSPECIFIED;
    bool all_read = false;
    TransportUse transport = {};
  };

  // The trainer has called. `source` is null for a load; `kept` is what the slab still holds for the trainer, or null.
  RankLoad(const v1::BeginLoadRequest& request, RankLayoutPtr layout, RankLayoutPtr source, KeptSavePtr kept);

  // --- The arrows.

  // PLANNING -> READING, by the part of the plan that was taken. What this rank says against an exchange over NCCL must
  // be heard before that: while it is undecided, only TakeStarted leads on. `source_image` is null for a load.
  void StartReading(SaveImagePtr source_image);
  // What StartReading asked for has begun. Returns whether the coordinator or the trainer has something new to hear.
  bool TakeStarted(const Started& started);
  // READING -> DONE, when all is read and the trainer has copied it. Returns whether it is so now.
  bool Complete();
  // To FAILED. The first error counts.
  void Fail(absl::Status why);
  // Takes the error for all ranks, which holds what this rank had said, or else `why`. To STOPPED, if the shell holds
  // nothing for it; else EndReading leads there. Returns whether the phase has changed.
  bool Abort(const v1::LoadOrder& order, const absl::Status& why);
  // The shell holds nothing for it any more.
  void EndReading();
  // The coordinator has said how it ended: layouts, plan and image are let go.
  void End();
  void End(const v1::LoadOrder& done);

  // --- In its phase.

  // Takes the order to read, before it reads.
  void Obey(const v1::LoadOrder& order) { order_ = order; }
  // Takes this rank's part of the order's plan. INTERNAL: it is another one.
  absl::Status TakePlan(const std::string& bytes, uint32_t own_rank);
  // Returns whether the reader is to be told how the bytes go, because that was not decided before.
  bool TakeExchange(const v1::Exchange& exchange);
  // Each returns whether it is so for the first time: the trainer has staged its source; it has copied what it loads,
  // and these are the fingerprints' parts (LoadState); all is read; the shell is to stop.
  bool StageSource() { return !std::exchange(source_staged_, true); }
  bool Consume(std::vector<uint64_t> parts);
  bool TakeProgress(const Progress& progress);
  bool Stop() { return reading_ && !std::exchange(stopping_, true); }

  // --- What it is.

  // True when the trainer can begin to receive.
  bool Begun() const { return plan_ != nullptr && (source_layout_ == nullptr || source_memory_.has_value()); }
  // It was ordered to read, and does not yet.
  bool WantsPlan() const;
  // True if the part that was taken last is of the order's plan.
  bool HasOrderedPlan() const;
  bool UsesLayout(const std::string& digest) const;
  // Tells the trainer how the load has begun, and how it has ended.
  void Describe(v1::BeginLoadResponse& response) const;
  void Describe(v1::EndLoadResponse& response) const;
  // Returns what the coordinator is told.
  v1::LoadState State() const;

  uint64_t number() const { return begun_.number(); }
  uint64_t trainer() const { return begun_.trainer_incarnation(); }
  // What this rank holds; null for a load.
  const RankLayoutPtr& source_layout() const { return source_layout_; }
  const SaveImagePtr& source_image() const { return source_image_; }
  bool has_source_memory() const { return source_memory_.has_value(); }
  const KeptSavePtr& kept() const { return kept_; }
  // The trainer can read parts of files itself.
  bool reads_pieces() const { return reads_pieces_; }
  const v1::LoadOrder& order() const { return order_; }
  // The other ranks that the part of the plan names as sources.
  const std::vector<uint32_t>& sources() const { return sources_; }
  const ReadPlanPtr& plan() const { return plan_; }
  bool reading() const { return reading_; }
  const std::shared_ptr<LoadConsumer>& consumer() const { return consumer_; }
  bool consumed() const { return consumed_; }
  bool ended() const { return ended_; }
  const absl::Status& error() const { return error_; }

 private:
  v1::LoadState begun_;  // what State says of it from its beginning to its end
  RankLayoutPtr layout_;
  // Set for a reshard: what this rank holds, what it lends of that, and where the trainer copies it.
  RankLayoutPtr source_layout_;
  SaveImagePtr source_image_;
  std::optional<SlabDescription> source_memory_;
  bool source_staged_ = false;
  // Says what the slab still held when the trainer called. When the plan has come, it is decided anew whether the slab
  // is used.
  KeptSavePtr kept_;
  bool reads_pieces_ = false;
  v1::Phase::Value phase_ = v1::Phase::PLANNING;
  v1::LoadOrder order_;
  // This rank's part of the plan when it has come.
  ReadPlanPtr fetched_;
  std::vector<uint32_t> sources_;
  ReadPlanPtr plan_;                        // the same, once it is read by
  bool reading_ = false;                    // the shell holds something for it
  std::shared_ptr<LoadConsumer> consumer_;  // set while the trainer can receive
  bool stopping_ = false;
  bool consumed_ = false;
  std::vector<uint64_t> parts_;   // of the fingerprints of what the trainer has copied, until the load has ended
  bool ended_ = false;            // ordered DONE (the totals stand in `order_`) or FAILED
  std::string exchange_refusal_;  // why this rank cannot take part in an exchange; empty if it can
  uint64_t read_bytes_ = 0;       // by its plan
  Progress progress_;
  absl::Status error_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_RANK_LOAD_H_
