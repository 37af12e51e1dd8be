#include "agent/transport/nccl/exchange_source.h"

#include <utility>

#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {

bool IsContiguous(const CopyWindow& window) {
  return window.copies.size() == 1 && window.copies.front().extents_size() == 0;
}

absl::Status ExchangeSource::Await(uint32_t round, uint32_t consumer) {
  const uint64_t call =
      lender_->Await(consumer, round, 0, [answers = answers_](auto answer) { answers->Put(std::move(answer)); });
  auto standing = answers_->Take();
  lender_->Forget(call);
  CAIRN_RETURN_IF_ERROR(standing.status());
  standing_ = *std::move(standing);
  return absl::OkStatus();
}

absl::Status ExchangeSource::Map() {
  CAIRN_ASSIGN_OR_RETURN(standing_number_, memory_.MapSource(standing_.memory));
  return absl::OkStatus();
}

void ExchangeSource::Send(const CopyWindow& window, worker::Transfer& sent) {
  sent.set_send(true);
  sent.set_bytes(window.bytes);
  if (IsContiguous(window)) {
    sent.set_memory(standing_number_);
    sent.set_offset(window.copies.front().source_offset());
    return;
  }
  const ExchangeMemory::Window& packed = memory_.packed(packing_);
  sent.set_memory(packed.number);
  sent.set_offset(packed_bytes_);
  packed_bytes_ +=
      CopyPacker(standing_.memory->data(), window.copies).Fill(packed.memory->data() + packed_bytes_, window.bytes);
}

void ExchangeSource::Cancel() { answers_->Put(MakeError(Reason::kInterrupted, "the exchange has ended")); }

}  // namespace cairn
