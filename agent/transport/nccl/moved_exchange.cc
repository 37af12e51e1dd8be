#include "agent/transport/nccl/moved_exchange.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/transport/nccl/exchange_error.h"
#include "common/base/clock.h"
#include "common/process/log.h"
#include "common/resources/page_size.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// So many transfers of one step fit into a packet to the worker.
constexpr size_t kMostTransfers = 2048;

}  // namespace

MovedExchange::MovedExchange(std::shared_ptr<GroupWorker> group, SaveImagePtr staged, SaveImagePtr target,
                             std::shared_ptr<SharedMemory> slab, Places places, std::unique_ptr<RoundPace> pace,
                             BufferPool& pool, MovedExchangeOptions options)
    : group_(std::move(group)),
      staged_(std::move(staged)),
      target_(std::move(target)),
      slab_(std::move(slab)),
      places_(std::move(places)),
      pace_(std::move(pace)),
      pool_(pool),
      options_(std::move(options)),
      memory_(group_, options_.stall_timeout),
      arrived_(target_->moved_in.size()),
      pipe_(group_, options_.stall_timeout,
            [this](const absl::Status& error, const ExchangeStep& step) { return StepError(error, step); }) {}

MovedExchange::~MovedExchange() {
  Cancel(MakeError(Reason::kSaveCancelled, "the save has ended"));
  if (thread_.joinable()) thread_.join();
}

absl::Status MovedExchange::Start() {
  MutexLock lock(mutex_);
  if (!cancelled_.ok()) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(thread_, StartThread("for an exchange over NCCL", [this] { Run(); }));
  begun_ = true;
  return absl::OkStatus();
}

void MovedExchange::Cancel(const absl::Status& why) {
  {
    MutexLock lock(mutex_);
    if (over_ || !cancelled_.ok()) return;
    cancelled_ = why;
    if (!begun_) {
      error_ = why;
      over_ = true;
    }
    changed_.NotifyAll();
    if (!begun_) return;
  }
  pace_->Cancel();
  pipe_.Cancel(why);
  // The worker does not answer any more, so what the exchange asks of it ends.
  options_.on_break(why);
}

absl::Status MovedExchange::Await(size_t index, uint64_t bytes) {
  MutexLock lock(mutex_);
  while (arrived_[index] < bytes && error_.ok()) changed_.Wait(mutex_);
  return arrived_[index] >= bytes ? absl::OkStatus() : error_;
}

absl::Status MovedExchange::AwaitEnd() {
  MutexLock lock(mutex_);
  while (!over_) changed_.Wait(mutex_);
  return error_;
}

bool MovedExchange::over() {
  MutexLock lock(mutex_);
  return over_;
}

bool MovedExchange::used() {
  MutexLock lock(mutex_);
  return std::any_of(arrived_.begin(), arrived_.end(), [](uint64_t bytes) { return bytes > 0; });
}

void MovedExchange::Run() {
  const absl::Time begin = Clock::Real().SteadyNow();
  const bool turn = group_->turn.Take(options_.turn_timeout);
  const absl::Status exchanged =
      turn ? Exchange() : MakeError(Reason::kTransportFailed, "cairn-gpu-worker is busy with another exchange");
  copies_.Stop();  // from here on nothing is written into a place
  uint64_t in = 0, out = 0;
  for (const MovedWindow& window : windows_) (window.send ? out : in) += window.bytes;
  Log(exchanged.ok() ? LogLevel::kInfo : LogLevel::kWarn, exchanged.ok() ? "shards_exchanged" : "exchange_failed",
      {{"step", options_.step},
       {"group", group_->number},
       {"received_bytes", in},
       {"sent_bytes", out},
       {"seconds", absl::ToDoubleSeconds(Clock::Real().SteadyNow() - begin)},
       {"error", exchanged}});
  if (!exchanged.ok()) {
    {
      MutexLock lock(mutex_);
      error_ = cancelled_.ok() ? exchanged : cancelled_;
      changed_.NotifyAll();  // they need not wait until the worker is dead
    }
    options_.on_break(exchanged);
    group_->worker->End();
  }
  pipe_.End();
  if (turn) group_->turn.GiveBack();
  MutexLock lock(mutex_);
  over_ = true;
  changed_.NotifyAll();
}

absl::Status MovedExchange::Exchange() {
  const size_t others = std::max<size_t>(1, group_->ranks.size() - 1);
  windows_ = CutMovedShards(*target_, options_.peers,
                            {options_.window_bytes, std::max<size_t>(1, kMostTransfers / 2 / others)});
  std::vector<ExchangeTransfer> transfers;
  for (size_t i = 0; i < windows_.size(); ++i) {
    const MovedWindow& window = windows_[i];
    const uint32_t peer = group_->IndexOf(window.peer);
    if (peer == group_->ranks.size()) {
      return MakeError(Reason::kTransportFailed, absl::StrCat("rank ", window.peer, " is not in the group"));
    }
    transfers.push_back({peer, window.send, 0, window.window, window.bytes, i});
  }
  steps_ = MakeSchedule(transfers);
  CAIRN_RETURN_IF_ERROR(MapMemory());
  CAIRN_RETURN_IF_ERROR(pipe_.Start());
  CAIRN_RETURN_IF_ERROR(AwaitAll());
  for (size_t i = 0; i < steps_.size(); ++i) CAIRN_RETURN_IF_ERROR(BeginStep(steps_[i], i % slots_.size()));
  CAIRN_RETURN_IF_ERROR(pipe_.Drain());
  for (size_t place = 0; place < slots_.size(); ++place) CAIRN_RETURN_IF_ERROR(pipe_.AwaitPlace(place));
  return memory_.UnmapAll();
}

absl::Status MovedExchange::MapMemory() {
  CAIRN_RETURN_IF_ERROR(MapSent());
  uint64_t in = 0;
  for (const ExchangeStep& step : steps_) in = std::max(in, step.bytes(false));
  if (in == 0) return absl::OkStatus();
  for (Slot& slot : slots_) {
    CAIRN_ASSIGN_OR_RETURN(slot.memory, pool_.Make("cairn-exchange", in));
    CAIRN_ASSIGN_OR_RETURN(slot.number, memory_.Map(slot.memory, true));
  }
  return absl::OkStatus();
}

// The shards that are moved out stand side by side at the end of the slab, unless the plan has changed since.
absl::Status MovedExchange::MapSent() {
  uint64_t begin = UINT64_MAX, end = 0;
  for (const MovedWindow& window : windows_) {
    if (!window.send) continue;
    for (const MovedPiece& piece : window.pieces) {
      const uint64_t at = staged_->slab_offset[target_->moved_out[piece.shard].shard] + piece.offset;
      begin = std::min(begin, at);
      end = std::max(end, at + piece.bytes);
    }
  }
  if (end == 0) return absl::OkStatus();
  sent_begin_ = RoundDownToPages(begin);
  CAIRN_ASSIGN_OR_RETURN(sent_number_, memory_.MapPart(slab_, sent_begin_, end - sent_begin_));
  return absl::OkStatus();
}

// Nobody waits for storage or for a trainer here, so a rank that does not come in time has lost its way.
absl::Status MovedExchange::AwaitAll() {
  const absl::Status all = pace_->Await(0, options_.gate_timeout + memory_.patience());
  if (all.ok() || HasReason(all, Reason::kInterrupted)) return all;
  return MakeError(Reason::kTransportFailed, absl::StrCat("an exchange over NCCL: ", all.message()));
}

absl::Status MovedExchange::BeginStep(const ExchangeStep& step, size_t place) {
  CAIRN_RETURN_IF_ERROR(pipe_.AwaitRoom());
  CAIRN_RETURN_IF_ERROR(pipe_.AwaitPlace(place));
  worker::Step request;
  uint64_t received = 0;
  std::vector<Arrived> arrived;
  for (const ExchangeTransfer& transfer : step.transfers) {
    for (const MovedPiece& piece : windows_[transfer.index].pieces) {
      worker::Transfer& moved = *request.add_transfers();
      moved.set_peer(transfer.peer);
      moved.set_bytes(piece.bytes);
      moved.set_send(transfer.send);
      if (transfer.send) {
        moved.set_memory(sent_number_);
        moved.set_offset(staged_->slab_offset[target_->moved_out[piece.shard].shard] + piece.offset - sent_begin_);
        continue;
      }
      moved.set_memory(slots_[place].number);
      moved.set_offset(received);
      arrived.push_back({piece, received});
      received += piece.bytes;
    }
  }
  const size_t holders = arrived.empty() ? 0 : 1;
  return pipe_.Post(step, std::move(request), place, holders, [this, place, arrived = std::move(arrived)] {
    if (!arrived.empty()) copies_.Post([this, place, arrived] { CopyOut(place, arrived); });
  });
}

void MovedExchange::CopyOut(size_t place, const std::vector<Arrived>& arrived) {
  const char* slot = slots_[place].memory->data();
  for (const Arrived& each : arrived) {
    std::memcpy(places_.at[each.piece.shard] + each.piece.offset, slot + each.offset, each.piece.bytes);
  }
  pipe_.Release(place);
  MutexLock lock(mutex_);
  for (const Arrived& each : arrived) arrived_[each.piece.shard] += each.piece.bytes;  // pieces come in their order
  changed_.NotifyAll();
}

absl::Status MovedExchange::StepError(const absl::Status& error, const ExchangeStep& step) const {
  std::set<uint32_t> peers;
  for (const ExchangeTransfer& transfer : step.transfers) peers.insert(group_->ranks[transfer.peer]);
  return ExchangeStepError(error, absl::StrCat("window ", step.window), peers, options_.rank, options_.stall_timeout);
}

}  // namespace cairn
