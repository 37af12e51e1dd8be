#include "agent/transport/exchange_source.h"

#include <utility>

#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {

bool IsContiguous(const CopyWindow& window) {
  return window.copies.size() == 1 && window.copies.front().extents_size() == 0;
}

absl::Status ExchangeSource::MakeRoom(uint64_t bytes, BufferPool& pool) {
  if (bytes == 0) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(packed_, pool.Make("cairn-packed", bytes));
  CAIRN_ASSIGN_OR_RETURN(packed_number_, memory_.Map(packed_, false));
  return absl::OkStatus();
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
  CAIRN_ASSIGN_OR_RETURN(standing_number_, memory_.Map(standing_.memory, false));
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
  sent.set_memory(packed_number_);
  sent.set_offset(packed_bytes_);
  packed_bytes_ +=
      CopyPacker(standing_.memory->data(), window.copies).Fill(packed_->data() + packed_bytes_, window.bytes);
}

void ExchangeSource::Cancel() { answers_->Put(MakeError(Reason::kInterrupted, "the exchange has ended")); }

}  // namespace cairn
