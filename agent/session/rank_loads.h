// The loads and reshards of this rank: what its trainer asks of them, what the coordinator orders, and what the reader
// reports.
#ifndef CAIRN_AGENT_SESSION_RANK_LOADS_H_
#define CAIRN_AGENT_SESSION_RANK_LOADS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/session/rank_load.h"
#include "agent/session/rank_plans.h"
#include "agent/session/rank_slab.h"
#include "agent/session/session_context.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/local_agent_service.pb.h"
#include "common/rpc/transport_use.h"

namespace cairn {

// A pure function of calls. Not thread-safe.
class RankLoads {
 public:
  // All must outlive it.
  RankLoads(SessionContext& context, RankPlans& plans, RankSlab& slab)
      : context_(context), plans_(plans), slab_(slab) {}

  // --- With the trainer, which is attached. Errors are those of LocalAgentService.

  // `layout` and `source`: those that the request names; `source` is null for a load.
  absl::StatusOr<v1::BeginLoadResponse> Begin(const v1::BeginLoadRequest& request, RankLayoutPtr layout,
                                              RankLayoutPtr source);
  // Ends the staging of a reshard's source.
  absl::Status CommitSource(const v1::CommitSourceRequest& request);
  // Where the trainer receives the load that it has begun under this number. Errors: that of the load.
  struct Receiving {
    bool complete = false;                   // the load's outcome is known: nothing more comes
    std::shared_ptr<LoadConsumer> consumer;  // null before it reads, and after its end
  };
  absl::StatusOr<Receiving> Receive(uint64_t trainer, uint64_t number) const;
  absl::StatusOr<v1::EndLoadResponse> End(const v1::EndLoadRequest& request);
  // Loads that the trainer has not copied to its end fail with `error`.
  void OnTrainerLost(uint64_t trainer, const absl::Status& error);

  // --- With the coordinator.

  // Adds what the coordinator is told. Orders are understood as an answer to what was added last.
  void AddTo(v1::AgentState& state);
  // Takes one order. Advance follows.
  void Obey(const v1::LoadOrder& order);
  // The coordinator has no room for this layout: what waits for its plan fails with `error`.
  void OnLayoutRefused(const std::string& digest, const absl::Status& error);

  // --- With the reader.

  // What StartRead asked for has begun.
  void OnStarted(uint64_t number, const RankLoad::Started& started);
  void OnProgress(uint64_t number, const RankLoad::Progress& progress);
  void OnFailed(uint64_t number, const absl::Status& status);
  void OnStopped(uint64_t number);
  // Takes every step that has become possible.
  void Advance();

  // True while one has no outcome.
  bool active() const;
  bool Uses(const std::string& layout_digest) const;
  // Returns whether this number was begun, and is not forgotten.
  bool Knows(uint64_t number) const { return loads_.contains(number); }

 private:
  RankLoad* Find(uint64_t number);
  // Returns the load that this trainer has begun under that number; null if there is none.
  const RankLoad* FindOf(uint64_t trainer, uint64_t number) const;
  absl::Status Bad(uint64_t number, std::string_view what) const;
  absl::Status Interrupted(std::string_view why) const;
  // Ends the load that the trainer gave up without a word. INVALID_ARGUMENT (BAD_REQUEST): it has begun a later one.
  absl::Status GiveUpOthers(uint64_t trainer, uint64_t number);
  // Makes room for one more.
  void ForgetEnded();
  void Fail(RankLoad& load, absl::Status error);
  void StopReading(RankLoad& load);
  void Advance(RankLoad& load);
  void StartReading(RankLoad& load);
  // Decides whether the load copies from the slab, and says so in `start`.
  void TakeKept(const RankLoad& load, action::StartRead& start);

  SessionContext& context_;
  RankPlans& plans_;
  RankSlab& slab_;
  std::map<uint64_t, RankLoad> loads_;  // by number
  std::map<uint64_t, uint64_t> told_;   // what AddTo added last: number -> trainer
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_RANK_LOADS_H_
