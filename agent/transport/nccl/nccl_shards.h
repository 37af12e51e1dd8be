// Moves the shards of one attempt of a save that other ranks hold and this one writes, or the other way round: chooses
// between the host transport and an exchange over NCCL as the coordinator decides, and keeps the gate of the exchange.
#ifndef CAIRN_AGENT_EXECUTION_SAVE_MOVES_H_
#define CAIRN_AGENT_EXECUTION_SAVE_MOVES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/execution/executor_context.h"
#include "agent/session/action.h"
#include "agent/staging/shared_memory.h"
#include "agent/transport/nccl/exchanged_shards.h"
#include "agent/transport/nccl/moved_exchange.h"
#include "agent/transport/nccl/round_gate.h"
#include "agent/transport/nccl/round_pace.h"
#include "agent/transport/shard_source.h"
#include "agent/transport/transfer_service.h"

namespace cairn {

// Thread-safe.
class SaveMoves {
 public:
  // The trainer has staged into `slab`. The context outlives this.
  SaveMoves(const ExecutorContext& context, const action::StartWrite& order, std::shared_ptr<SharedMemory> slab);
  // Stops, and waits until no worker uses the slab.
  ~SaveMoves();

  // Takes what the coordinator says of the exchange. May make memory.
  void Decide(const v1::Exchange& exchange);
  // Does what ShardSource::Fetch says.
  absl::Status Fetch(size_t index, uint64_t offset, uint64_t bytes, char* to);
  // Blocks until no worker uses the slab: until all that this rank sends has been sent, or is taken from it in another
  // way.
  void AwaitEnd();
  // Ends what others wait for; does not wait. Idempotent.
  void Stop();

  std::vector<uint32_t> waiting_for();
  std::string transport();

 private:
  void ServeGate();
  absl::StatusOr<std::shared_ptr<MovedExchange>> MakeExchange(uint64_t group);
  absl::StatusOr<MovedExchange::Places> MakePlaces();
  absl::StatusOr<std::unique_ptr<RoundPace>> MakePace(uint32_t keeper);

  const ExecutorContext& context_;
  const action::StartWrite order_;
  const std::shared_ptr<SharedMemory> slab_;
  const std::set<uint32_t> peers_;  // with which this rank exchanges
  const std::string gate_token_;
  std::vector<bool> exchanged_;  // by index of SaveImage::moved_in
  std::shared_ptr<RoundGate> gate_;
  // It is null if nothing is moved in and nothing is exchanged.
  std::shared_ptr<ShardSource> source_;
  std::shared_ptr<ExchangedShards> exchange_;  // the same, if there is an exchange; else null
};

}  // namespace cairn

#endif  // CAIRN_AGENT_EXECUTION_SAVE_MOVES_H_
