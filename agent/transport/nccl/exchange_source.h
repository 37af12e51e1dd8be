// Gives what a rank sends in an exchange over NCCL: rounds that its agent lends, straight from where they stand or
// packed.
#ifndef CAIRN_AGENT_TRANSPORT_NCCL_EXCHANGE_SOURCE_H_
#define CAIRN_AGENT_TRANSPORT_NCCL_EXCHANGE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "agent/reader/round_byte_server.h"
#include "agent/transport/copy_packer.h"
#include "agent/transport/nccl/answer_box.h"
#include "agent/transport/nccl/exchange_memory.h"
#include "gpu/share/gpu_worker.pb.h"

namespace cairn {

// A window of contiguous bytes, which is sent from where it lies. Others are packed.
bool IsContiguous(const CopyWindow& window);

// One thread uses it, but any may call Cancel.
class ExchangeSource {
 public:
  // `memory` outlives it.
  ExchangeSource(std::shared_ptr<ByteServer> lender, ExchangeMemory& memory)
      : lender_(std::move(lender)), memory_(memory) {}

  // Blocks until a round stands of which `consumer` takes. Send then sends from it. It has the errors of the lender,
  // and CANCELLED (INTERRUPTED) after Cancel.
  absl::Status Await(uint32_t round, uint32_t consumer);
  // Gives the worker the round that stands.
  absl::Status Map();
  // Begins a step: what was packed for the step before the last one was sent.
  void BeginStep() {
    packing_ = (packing_ + 1) % ExchangeMemory::kWindows;
    packed_bytes_ = 0;
  }
  // Says where the window's bytes are. All of its copies must lie in the round, and there must be room to pack them.
  void Send(const CopyWindow& window, worker::Transfer& sent);
  // The consumer has all that it takes below this round.
  void Release(uint32_t consumer, uint32_t below) { lender_->Release(consumer, below); }
  void Cancel();

 private:
  const std::shared_ptr<ByteServer> lender_;
  ExchangeMemory& memory_;
  // The lender's answers may come after this object's end.
  const std::shared_ptr<AnswerBox<RoundBuffer>> answers_ = std::make_shared<AnswerBox<RoundBuffer>>();
  RoundBuffer standing_;
  uint64_t standing_number_ = 0;  // by which the worker knows it
  size_t packing_ = 0;            // the window for the step that is being made
  uint64_t packed_bytes_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_NCCL_EXCHANGE_SOURCE_H_
