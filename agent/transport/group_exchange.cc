#include "agent/transport/group_exchange.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "agent/transport/exchange_error.h"
#include "common/base/clock.h"
#include "common/process/log.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// All ranks lend what they have when the exchange begins, so they call when they have mapped it. A rank whose worker
// does not map is named by its own agent, and an agent that is gone by the coordinator.
constexpr absl::Duration kOfferTimeout = absl::Minutes(5);
constexpr uint64_t kSmallestWindow = uint64_t{64} << 10;
// A step needs no more to be fast, and pages that are made and registered for one exchange cost as much time as their
// bytes take on a fast network.
constexpr uint64_t kLargestStep = uint64_t{64} << 20;

}  // namespace

GroupExchange::GroupExchange(std::shared_ptr<GroupWorker> group, std::shared_ptr<LoadConsumer> consumer,
                             std::shared_ptr<ByteServer> lender, std::shared_ptr<WindowOffers> offers,
                             std::unique_ptr<RoundPace> pace, BufferPool& pool, GroupExchangeOptions options)
    : group_(std::move(group)),
      consumer_(std::move(consumer)),
      offers_(std::move(offers)),
      pace_(std::move(pace)),
      pool_(pool),
      options_(std::move(options)),
      sender_(options_.sender),
      memory_(group_, options_.stall_timeout),
      source_(std::move(lender), memory_) {}

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
  const absl::Time until = Clock::Real().SteadyNow() + memory_.patience();
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
  source_.Cancel();
  if (pace_ != nullptr) pace_->Cancel();
  // Its worker does not answer any more, so a step that is under way ends.
  if (broken) options_.on_break(MakeError(Reason::kInterrupted, "an exchange was given up"));
  if (thread_.joinable()) thread_.join();
}

void GroupExchange::Run() {
  const absl::Time begin = prepared_ = Clock::Real().SteadyNow();
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
       {"prepared_seconds", absl::ToDoubleSeconds(prepared_ - begin)},
       {"seconds", absl::ToDoubleSeconds(Clock::Real().SteadyNow() - begin)},
       {"error", exchanged}});
  if (exchanged.ok() || stopping) return;
  if (!failed_in_waiting_) options_.on_break(exchanged);
  options_.on_error(exchanged);
}

uint32_t GroupExchange::IndexOf(uint32_t rank) const {
  return static_cast<uint32_t>(std::find(group_->ranks.begin(), group_->ranks.end(), rank) - group_->ranks.begin());
}

absl::Status GroupExchange::Exchange() {
  if (!group_->turn.Take(options_.turn_timeout)) {
    return MakeError(Reason::kTransportFailed, "an exchange over NCCL: cairn-gpu-worker is busy with another one",
                     {{"ranks", absl::StrCat(options_.rank)}});
  }
  const absl::Cleanup give_back = [this] { group_->turn.GiveBack(); };
  CAIRN_RETURN_IF_ERROR(TakeWindows());
  CAIRN_RETURN_IF_ERROR(MakeMemory());
  CAIRN_RETURN_IF_ERROR(Agree());
  std::vector<ExchangeTransfer> transfers = Receives();
  for (const ExchangeTransfer& sent : Sends()) transfers.push_back(sent);
  const std::vector<ExchangeRound> course = MakeCourse(transfers);
  CAIRN_RETURN_IF_ERROR(MakePacked(course));
  prepared_ = Clock::Real().SteadyNow();
  {
    MutexLock lock(mutex_);
    stepping_ = true;
  }
  for (const HeldWindow& held : receives_) {
    if (held.window.copies.bytes > 0) continue;  // else it is in no step
    consumer_->HandOutHeld(held, slots_[0].id, slots_[0].memory->bytes(), 0, [] {});
  }
  for (const ExchangeRound& round : course) CAIRN_RETURN_IF_ERROR(RunRound(round));
  if (pace_ != nullptr) pace_->Pass(UINT32_MAX);
  // The trainer may copy still, which needs the agent's memory but not the worker's. All bytes have come, so the load
  // does not fail if the worker does now.
  if (const absl::Status unmapped = memory_.UnmapAll(); !unmapped.ok()) options_.on_break(unmapped);
  return absl::OkStatus();
}

absl::Status GroupExchange::RunRound(const ExchangeRound& round) {
  CAIRN_RETURN_IF_ERROR(AwaitRound(round));
  for (const ExchangeStep& step : round.steps) CAIRN_RETURN_IF_ERROR(RunStep(step));
  reached_ = round.round + 1;
  if (!round.lends) return absl::OkStatus();
  for (const uint32_t consumer : consumers_) source_.Release(consumer, reached_);
  return absl::OkStatus();
}

absl::Status GroupExchange::AwaitRound(const ExchangeRound& round) {
  if (pace_ == nullptr) return absl::OkStatus();  // all stands, and all have told that they are ready
  {
    MutexLock lock(mutex_);
    stepping_ = false;
  }
  failed_in_waiting_ = true;
  if (round.lends) {
    // The others need not wait while this rank reads rounds that they do not take over NCCL.
    if (round.round > reached_) pace_->Pass(round.round);
    const auto taken =
        std::find_if(sends_.begin(), sends_.end(), [&](const Send& send) { return send.window.round == round.round; });
    CAIRN_RETURN_IF_ERROR(source_.Await(round.round, taken->consumer));
    failed_in_waiting_ = false;
    CAIRN_RETURN_IF_ERROR(source_.Map());
    failed_in_waiting_ = true;
  }
  if (!round.steps.empty()) CAIRN_RETURN_IF_ERROR(pace_->Await(round.round));
  failed_in_waiting_ = false;
  MutexLock lock(mutex_);
  stepping_ = true;
  return absl::OkStatus();
}

absl::Status GroupExchange::TakeWindows() {
  // Two steps' windows from all peers, and what one step packs for them, together take two rounds: as much as the
  // windows of a load that goes over the host.
  const uint64_t peers = std::max<uint64_t>(1, group_->ranks.size() - 1);
  const uint64_t window = std::max(kSmallestWindow, std::min(options_.round_bytes / 3 * 2, kLargestStep) / peers);
  CAIRN_ASSIGN_OR_RETURN(receives_, consumer_->TakeHeld(window));
  for (const HeldWindow& held : receives_) {
    if (IndexOf(held.rank) < group_->ranks.size()) continue;
    return MakeError(Reason::kTransportFailed, absl::StrCat("rank ", held.rank, " is not in the group"));
  }
  return absl::OkStatus();
}

absl::Status GroupExchange::Agree() {
  std::map<uint32_t, std::vector<OfferedCopies>> taken;
  std::map<uint32_t, std::vector<size_t>> numbers;  // in receives_
  for (size_t i = 0; i < receives_.size(); ++i) {
    taken[receives_[i].rank].push_back(receives_[i].window);
    numbers[receives_[i].rank].push_back(i);
  }
  std::vector<uint32_t> others = group_->ranks;
  std::erase(others, options_.rank);
  for (const uint32_t rank : others) {
    if (options_.peers.contains(rank)) continue;
    return MakeError(Reason::kTransportFailed, absl::StrCat("no address of rank ", rank),
                     {{"rank", absl::StrCat(rank)}, {"ranks", absl::StrCat(rank)}});
  }
  offers_->Expect(others);  // their calls wait for each other
  for (const uint32_t rank : others) {
    const v1::TransferPeer& peer = options_.peers.at(rank);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<uint32_t> broadcast, sender_.Send(peer, taken[rank]));
    for (const uint32_t number : broadcast) {
      if (number >= numbers[rank].size()) {
        return MakeError(
            Reason::kTransportFailed,
            absl::StrCat("rank ", rank, " broadcasts a window that rank ", options_.rank, " does not take"),
            {{"ranks", absl::StrCat(rank)}});
      }
      receives_[numbers[rank][number]].window.broadcast = true;
    }
  }
  auto offered = offers_->Await(others, kOfferTimeout);
  if (!offered.ok()) {
    const auto metadata = MetadataOf(offered.status());
    return MakeError(Reason::kTransportFailed, std::string(offered.status().message()),
                     {metadata.begin(), metadata.end()});
  }
  for (auto& [consumer, windows] : *offered) {
    if (!windows.empty()) consumers_.push_back(consumer);
    for (OfferedCopies& each : windows) {
      const bool sent_already = each.broadcast && consumer != others.front();
      if (!sent_already) sends_.push_back({std::move(each), consumer});
    }
  }
  return absl::OkStatus();
}

std::vector<ExchangeTransfer> GroupExchange::Receives() const {
  std::vector<ExchangeTransfer> transfers;
  for (size_t i = 0; i < receives_.size(); ++i) {
    const OfferedCopies& window = receives_[i].window;
    transfers.push_back(
        {IndexOf(receives_[i].rank), false, window.round, window.window, window.copies.bytes, i, window.broadcast});
  }
  return transfers;
}

std::vector<ExchangeTransfer> GroupExchange::Sends() const {
  std::vector<ExchangeTransfer> transfers;
  for (size_t i = 0; i < sends_.size(); ++i) {
    const OfferedCopies& window = sends_[i].window;
    const uint32_t peer = IndexOf(window.broadcast ? options_.rank : sends_[i].consumer);
    transfers.push_back({peer, true, window.round, window.window, window.copies.bytes, i, window.broadcast});
  }
  return transfers;
}

absl::Status GroupExchange::MakeMemory() {
  uint64_t in = 1;
  for (const ExchangeStep& step : MakeSchedule(Receives())) in = std::max(in, step.bytes(false));
  if (pace_ == nullptr) {
    CAIRN_RETURN_IF_ERROR(source_.Await(0, options_.rank));
    CAIRN_RETURN_IF_ERROR(source_.Map());
  }
  for (Slot& slot : slots_) {
    CAIRN_ASSIGN_OR_RETURN(slot.memory, pool_.Make("cairn-exchange", in));
    // The worker maps it before it is offered: from then on nobody can map it writable.
    CAIRN_ASSIGN_OR_RETURN(slot.number, memory_.Map(slot.memory, true));
    CAIRN_ASSIGN_OR_RETURN(slot.id, options_.offer(slot.memory));
  }
  return absl::OkStatus();
}

absl::Status GroupExchange::MakePacked(const std::vector<ExchangeRound>& course) {
  uint64_t packed = 0;
  for (const ExchangeRound& round : course) {
    for (const ExchangeStep& step : round.steps) {
      uint64_t bytes = 0;
      for (const ExchangeTransfer& transfer : step.transfers) {
        if (transfer.send && !IsContiguous(sends_[transfer.index].window.copies)) bytes += transfer.bytes;
      }
      packed = std::max(packed, bytes);
    }
  }
  return source_.MakeRoom(packed, pool_);
}

bool GroupExchange::AwaitSlot(Slot& slot) {
  MutexLock lock(mutex_);
  while (!stopping_ && slot.unreleased > 0) changed_.Wait(mutex_);
  return !stopping_;
}

absl::Status GroupExchange::RunStep(const ExchangeStep& step) {
  Slot& slot = slots_[steps_++ % slots_.size()];
  if (!AwaitSlot(slot)) return MakeError(Reason::kInterrupted, "the load has ended");
  source_.BeginStep();
  worker::Step request;
  request.set_number(++group_->steps);
  uint64_t received = 0;
  std::vector<std::pair<size_t, uint64_t>> arriving;  // the number of what is received, and where
  for (const ExchangeTransfer& transfer : step.transfers) {
    worker::Transfer& moved = *request.add_transfers();
    moved.set_peer(transfer.peer);
    moved.set_broadcast(transfer.broadcast);
    if (transfer.send) {
      source_.Send(sends_[transfer.index].window.copies, moved);
      continue;
    }
    moved.set_memory(slot.number);
    moved.set_offset(received);
    moved.set_bytes(transfer.bytes);
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
  for (const ExchangeTransfer& transfer : step.transfers) {
    if (transfer.broadcast) {
      peers.insert(group_->ranks.begin(), group_->ranks.end());  // each of them may be in the way of the others
    } else {
      peers.insert(group_->ranks[transfer.peer]);
    }
  }
  peers.erase(options_.rank);
  return ExchangeStepError(
      error, absl::StrCat("window ", step.window, pace_ == nullptr ? "" : absl::StrCat(" of round ", step.round)),
      peers, options_.rank, options_.stall_timeout);
}

}  // namespace cairn
