#include "agent/transport/group_exchange.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/transport/copy_packer.h"
#include "common/base/clock.h"
#include "common/process/log.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// All ranks have staged their sources when the exchange begins, so they call when they have mapped them. A rank whose
// worker does not map is named by its own agent, and an agent that is gone by the coordinator.
constexpr absl::Duration kOfferTimeout = absl::Minutes(5);
// Registering memory takes about 0.1 s for each GB.
constexpr absl::Duration kMapTimePerGb = absl::Seconds(1);
constexpr uint64_t kSmallestWindow = uint64_t{64} << 10;
constexpr size_t kPackChunk = size_t{1} << 20;

// What the worker knows the memory by.
constexpr uint64_t kSourceMemory = 1;
constexpr uint64_t kPackedMemory = 2;
constexpr uint64_t kFirstSlotMemory = 3;

// A window of contiguous bytes is sent from where it lies.
bool IsContiguous(const CopyWindow& window) {
  return window.copies.size() == 1 && window.copies.front().extents_size() == 0;
}

}  // namespace

GroupExchange::GroupExchange(std::shared_ptr<GroupWorker> group, std::shared_ptr<LoadConsumer> consumer,
                             std::shared_ptr<SharedMemory> source, std::shared_ptr<WindowOffers> offers,
                             BufferPool& pool, GroupExchangeOptions options)
    : group_(std::move(group)),
      consumer_(std::move(consumer)),
      source_(std::move(source)),
      offers_(std::move(offers)),
      pool_(pool),
      options_(std::move(options)),
      sender_(options_.sender) {}

GroupExchange::~GroupExchange() {
  Stop();
  for (const Slot& slot : slots_) {
    if (slot.id != 0) options_.withdraw(slot.id);
  }
}

absl::Status GroupExchange::Start() {
  MutexLock lock(mutex_);
  if (stopping_) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(thread_, StartThread("for an exchange over NCCL", [this] { Run(); }));
  begun_ = true;
  return absl::OkStatus();
}

void GroupExchange::Stop() {
  bool broken = false;
  const absl::Time until = Clock::Real().SteadyNow() + MapTimeout(source_->bytes());
  {
    MutexLock lock(mutex_);
    // Others take the last bytes perhaps, and the worker gives memory back. If the load has failed, the group is broken
    // by the coordinator's order, and the exchange ends by that.
    while (stepping_ && !done_ && !stopping_ && Clock::Real().SteadyNow() < until) {
      changed_.WaitFor(mutex_, until - Clock::Real().SteadyNow());
    }
    if (!std::exchange(stopping_, true)) broken = begun_ && !done_;
    changed_.NotifyAll();
  }
  offers_->Stop();
  sender_.Cancel();
  // Its worker does not answer any more, so a step that is under way ends.
  if (broken) options_.on_break(MakeError(Reason::kInterrupted, "an exchange was given up"));
  if (thread_.joinable()) thread_.join();
}

void GroupExchange::Run() {
  const absl::Time begin = Clock::Real().SteadyNow();
  const absl::Status exchanged = Exchange();
  bool stopping = false;
  {
    MutexLock lock(mutex_);
    stopping = stopping_;
    done_ = true;
    changed_.NotifyAll();
  }
  uint64_t in = 0, out = 0;
  for (const HeldWindow& held : receives_) in += held.window.copies.bytes;
  for (const Send& send : sends_) out += send.window.copies.bytes;
  Log(exchanged.ok() ? LogLevel::kInfo : LogLevel::kWarn, exchanged.ok() ? "exchanged" : "exchange_failed",
      {{"load", options_.load},
       {"group", group_->number},
       {"received_bytes", in},
       {"sent_bytes", out},
       {"seconds", absl::ToDoubleSeconds(Clock::Real().SteadyNow() - begin)},
       {"error", exchanged}});
  if (exchanged.ok() || stopping) return;
  options_.on_break(exchanged);
  options_.on_error(exchanged);
}

uint32_t GroupExchange::IndexOf(uint32_t rank) const {
  return static_cast<uint32_t>(std::find(group_->ranks.begin(), group_->ranks.end(), rank) - group_->ranks.begin());
}

absl::Status GroupExchange::Exchange() {
  CAIRN_RETURN_IF_ERROR(TakeWindows());
  CAIRN_RETURN_IF_ERROR(MakeMemory());
  CAIRN_RETURN_IF_ERROR(Agree());
  std::vector<ExchangeTransfer> transfers = Receives();
  for (const ExchangeTransfer& sent : Sends()) transfers.push_back(sent);
  const std::vector<ExchangeStep> steps = MakeSchedule(transfers);
  CAIRN_RETURN_IF_ERROR(MakePacked(steps));
  {
    MutexLock lock(mutex_);
    stepping_ = true;
  }
  for (const HeldWindow& held : receives_) {
    if (held.window.copies.bytes > 0) continue;  // else it is in no step
    consumer_->HandOutHeld(held, slots_[0].id, slots_[0].memory->bytes(), 0, [] {});
  }
  for (size_t i = 0; i < steps.size(); ++i) CAIRN_RETURN_IF_ERROR(RunStep(steps[i], slots_[i % slots_.size()]));
  // The trainer may copy still, which needs the agent's memory but not the worker's. All bytes have come, so the load
  // does not fail if the worker does now.
  for (const uint64_t memory : {kSourceMemory, kPackedMemory, kFirstSlotMemory, kFirstSlotMemory + 1}) {
    if (const absl::Status unmapped = group_->worker->Unmap(memory, MapTimeout(source_->bytes())); !unmapped.ok()) {
      options_.on_break(unmapped);
      break;
    }
  }
  return absl::OkStatus();
}

absl::Status GroupExchange::TakeWindows() {
  // Two steps' windows from all peers, and what one step packs for them, together take two rounds: as much as the
  // windows of a load that goes over the host.
  const uint64_t peers = std::max<uint64_t>(1, group_->ranks.size() - 1);
  const uint64_t window = std::max(kSmallestWindow, options_.round_bytes / 3 * 2 / peers);
  CAIRN_ASSIGN_OR_RETURN(receives_, consumer_->TakeHeld(window));
  for (const HeldWindow& held : receives_) {
    if (IndexOf(held.rank) < group_->ranks.size()) continue;
    return MakeError(Reason::kTransportFailed, absl::StrCat("rank ", held.rank, " is not in the group"));
  }
  return absl::OkStatus();
}

absl::Status GroupExchange::Agree() {
  std::map<uint32_t, std::vector<OfferedCopies>> taken;
  for (const HeldWindow& held : receives_) taken[held.rank].push_back(held.window);
  std::vector<uint32_t> others;
  for (const uint32_t rank : group_->ranks) {
    if (rank == options_.rank) continue;
    others.push_back(rank);
    const auto peer = options_.peers.find(rank);
    if (peer == options_.peers.end()) {
      return MakeError(Reason::kTransportFailed, absl::StrCat("no address of rank ", rank),
                       {{"rank", absl::StrCat(rank)}, {"ranks", absl::StrCat(rank)}});
    }
    CAIRN_RETURN_IF_ERROR(sender_.Send(peer->second, taken[rank]));
  }
  auto offered = offers_->Await(others, kOfferTimeout);
  if (!offered.ok()) {
    const auto metadata = MetadataOf(offered.status());
    return MakeError(Reason::kTransportFailed, std::string(offered.status().message()),
                     {metadata.begin(), metadata.end()});
  }
  for (auto& [consumer, windows] : *offered) {
    for (OfferedCopies& each : windows) {
      if (each.round != 0) return MakeError(Reason::kBadRequest, "a round of memory, which has one");
      sends_.push_back({std::move(each), consumer});
    }
  }
  return absl::OkStatus();
}

std::vector<ExchangeTransfer> GroupExchange::Receives() const {
  std::vector<ExchangeTransfer> transfers;
  for (size_t i = 0; i < receives_.size(); ++i) {
    const OfferedCopies& window = receives_[i].window;
    transfers.push_back({IndexOf(receives_[i].rank), false, window.round, window.window, window.copies.bytes, i});
  }
  return transfers;
}

std::vector<ExchangeTransfer> GroupExchange::Sends() const {
  std::vector<ExchangeTransfer> transfers;
  for (size_t i = 0; i < sends_.size(); ++i) {
    const OfferedCopies& window = sends_[i].window;
    transfers.push_back({IndexOf(sends_[i].consumer), true, window.round, window.window, window.copies.bytes, i});
  }
  return transfers;
}

absl::Duration GroupExchange::MapTimeout(uint64_t bytes) const {
  return options_.stall_timeout + kMapTimePerGb * (static_cast<double>(bytes) / 1e9);
}

absl::Status GroupExchange::Map(uint64_t number, const SharedMemory& memory, bool writable) {
  const absl::Status mapped =
      group_->worker->Map(number, memory.bytes(), writable, memory.fd(), MapTimeout(memory.bytes()));
  if (mapped.ok()) return mapped;
  return MakeError(Reason::kTransportFailed, absl::StrCat("an exchange over NCCL: ", mapped.message()));
}

absl::Status GroupExchange::MakeMemory() {
  uint64_t in = 1;
  for (const ExchangeStep& step : MakeSchedule(Receives())) in = std::max(in, step.bytes(false));
  CAIRN_RETURN_IF_ERROR(Map(kSourceMemory, *source_, false));
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    CAIRN_ASSIGN_OR_RETURN(slot.memory, pool_.Make("cairn-exchange", in));
    // The worker maps it before it is offered: from then on nobody can map it writable.
    CAIRN_RETURN_IF_ERROR(Map(kFirstSlotMemory + i, *slot.memory, true));
    CAIRN_ASSIGN_OR_RETURN(slot.id, options_.offer(slot.memory));
  }
  return absl::OkStatus();
}

absl::Status GroupExchange::MakePacked(const std::vector<ExchangeStep>& steps) {
  uint64_t packed = 1;
  for (const ExchangeStep& step : steps) {
    uint64_t bytes = 0;
    for (const ExchangeTransfer& transfer : step.transfers) {
      if (transfer.send && !IsContiguous(sends_[transfer.index].window.copies)) bytes += transfer.bytes;
    }
    packed = std::max(packed, bytes);
  }
  CAIRN_ASSIGN_OR_RETURN(packed_, pool_.Make("cairn-packed", packed));
  return Map(kPackedMemory, *packed_, false);
}

bool GroupExchange::AwaitSlot(Slot& slot) {
  MutexLock lock(mutex_);
  while (!stopping_ && slot.unreleased > 0) changed_.Wait(mutex_);
  return !stopping_;
}

void GroupExchange::AddSend(const ExchangeTransfer& transfer, uint64_t& packed, worker::Step& step) {
  const CopyWindow& window = sends_[transfer.index].window.copies;
  worker::Transfer& sent = *step.add_transfers();
  sent.set_peer(transfer.peer);
  sent.set_send(true);
  sent.set_bytes(transfer.bytes);
  if (IsContiguous(window)) {
    sent.set_memory(kSourceMemory);
    sent.set_offset(window.copies.front().source_offset());
    return;
  }
  sent.set_memory(kPackedMemory);
  sent.set_offset(packed);
  CopyPacker packer(source_->data(), window.copies);
  for (std::string chunk = packer.Next(kPackChunk); !chunk.empty(); chunk = packer.Next(kPackChunk)) {
    std::memcpy(packed_->data() + packed, chunk.data(), chunk.size());
    packed += chunk.size();
  }
}

absl::Status GroupExchange::RunStep(const ExchangeStep& step, Slot& slot) {
  if (!AwaitSlot(slot)) return MakeError(Reason::kInterrupted, "the load has ended");
  worker::Step request;
  request.set_number(++group_->steps);
  uint64_t received = 0, packed = 0;
  std::vector<std::pair<size_t, uint64_t>> arriving;  // the number of what is received, and where
  for (const ExchangeTransfer& transfer : step.transfers) {
    if (transfer.send) {
      AddSend(transfer, packed, request);
      continue;
    }
    worker::Transfer& taken = *request.add_transfers();
    taken.set_peer(transfer.peer);
    taken.set_memory(kFirstSlotMemory + static_cast<uint64_t>(&slot - slots_.data()));
    taken.set_offset(received);
    taken.set_bytes(transfer.bytes);
    arriving.emplace_back(transfer.index, received);
    received += transfer.bytes;
  }
  if (const absl::Status stepped = group_->worker->Step(request, options_.stall_timeout); !stepped.ok()) {
    return StepError(stepped, step);
  }
  {
    MutexLock lock(mutex_);
    slot.unreleased = arriving.size();
  }
  for (const auto& [index, offset] : arriving) {
    consumer_->HandOutHeld(receives_[index], slot.id, slot.memory->bytes(), offset, [this, &slot] {
      MutexLock lock(mutex_);
      --slot.unreleased;
      changed_.NotifyAll();
    });
  }
  return absl::OkStatus();
}

absl::Status GroupExchange::StepError(const absl::Status& error, const ExchangeStep& step) const {
  std::set<uint32_t> peers;
  for (const ExchangeTransfer& transfer : step.transfers) peers.insert(group_->ranks[transfer.peer]);
  const std::string named = absl::StrJoin(peers, ", ");
  const std::string where = absl::StrCat("window ", step.window, " of the exchange over NCCL with ",
                                         peers.size() == 1 ? "rank " : "ranks ", named);
  if (HasReason(error, Reason::kTimedOut)) {
    return MakeError(Reason::kTransportFailed,
                     absl::StrCat(where, " has made no progress for ", absl::FormatDuration(options_.stall_timeout)),
                     {{"ranks", named}});
  }
  // This rank's worker has failed, or says what NCCL says.
  return MakeError(Reason::kTransportFailed, absl::StrCat(where, ": ", error.message()),
                   {{"ranks", absl::StrCat(options_.rank)}});
}

}  // namespace cairn
