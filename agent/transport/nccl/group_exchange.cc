#include "agent/transport/nccl/group_exchange.h"

#include <algorithm>
#include <map>
#include <set>
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

// All ranks lend what they have when the exchange begins, so they call when they have mapped it. A rank whose worker
// does not map is named by its own agent, and an agent that is gone by the coordinator.
constexpr absl::Duration kOfferTimeout = absl::Minutes(5);
constexpr uint64_t kSmallestWindow = uint64_t{64} << 10;
// A step needs no more to be fast, because the worker has two of them, and pages that are made and registered for one
// exchange cost as much time as their bytes take on a fast network.
constexpr uint64_t kLargestStep = uint64_t{32} << 20;

static_assert(ExchangeMemory::kWindows == StepPipe::kPlaces, "each step that is under way has windows of its own");

uint64_t Peers(const GroupWorker& group) { return std::max<uint64_t>(1, group.ranks.size() - 1); }

}  // namespace

GroupExchange::GroupExchange(std::shared_ptr<GroupWorker> group, std::shared_ptr<LoadConsumer> consumer,
                             std::shared_ptr<ByteServer> lender, std::shared_ptr<WindowOffers> offers,
                             std::unique_ptr<RoundPace> pace, BufferPool& pool, GroupExchangeOptions options)
    : group_(std::move(group)),
      consumer_(std::move(consumer)),
      offers_(std::move(offers)),
      pace_(std::move(pace)),
      options_(std::move(options)),
      sender_(options_.sender),
      memory_(group_, pool, options_.room, options_.stall_timeout, options_.offers),
      source_(std::move(lender), memory_),
      pipe_(group_, options_.stall_timeout,
            [this](const absl::Status& error, const ExchangeStep& step) { return StepError(error, step); }) {}

GroupExchange::~GroupExchange() {
  Stop();
  if (thread_.joinable()) thread_.join();
}

absl::Status GroupExchange::Start() {
  MutexLock lock(mutex_);
  if (stopping_) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(thread_, StartThread("for an exchange over NCCL", [this] { Run(); }));
  return absl::OkStatus();
}

void GroupExchange::Go() {
  MutexLock lock(mutex_);
  going_ = !stopping_;
  changed_.NotifyAll();
}

bool GroupExchange::ended() {
  MutexLock lock(mutex_);
  return done_;
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
    if (!std::exchange(stopping_, true)) broken = going_ && !done_;
    changed_.NotifyAll();
    if (!going_) return;
  }
  offers_->Stop();
  sender_.Cancel();
  source_.Cancel();
  if (pace_ != nullptr) pace_->Cancel();
  pipe_.Cancel(MakeError(Reason::kInterrupted, "the load has ended"));
  // Its worker does not answer any more, so a step that is under way ends.
  if (broken) options_.on_break(MakeError(Reason::kInterrupted, "an exchange was given up"));
  if (thread_.joinable()) thread_.join();
}

void GroupExchange::Run() {
  const absl::Status prepared = PrepareMemory();
  bool going = false;
  {
    MutexLock lock(mutex_);
    while (!going_ && !stopping_) changed_.Wait(mutex_);
    going = going_;
  }
  if (going) return RunExchange(prepared);
  GiveBackMemory();
  MutexLock lock(mutex_);
  done_ = true;
}

absl::Status GroupExchange::PrepareMemory() {
  {
    MutexLock lock(mutex_);
    if (going_ || stopping_) return absl::OkStatus();
  }
  if (!group_->turn.Take(absl::ZeroDuration())) return absl::OkStatus();
  const absl::Time begin = Clock::Real().SteadyNow();
  const absl::Status made = MakeMemoryAhead();
  group_->turn.GiveBack();
  Log(LogLevel::kInfo, "exchange_prepared",
      {{"load", options_.load},
       {"group", group_->number},
       {"seconds", absl::ToDoubleSeconds(Clock::Real().SteadyNow() - begin)},
       {"error", made}});
  if (!HasReason(made, Reason::kTransportFailed)) return absl::OkStatus();
  bool broken = false;  // by Stop
  {
    MutexLock lock(mutex_);
    broken = going_ && stopping_;
  }
  if (!broken) options_.on_break(made);
  return made;
}

absl::Status GroupExchange::MakeMemoryAhead() {
  if (const std::shared_ptr<SharedMemory> source = options_.source.lock(); source != nullptr) {
    CAIRN_RETURN_IF_ERROR(memory_.MapSource(source).status());
  }
  if (options_.expected_bytes == 0) return absl::OkStatus();
  const uint64_t step = std::min(StepBytes(), options_.expected_bytes);
  CAIRN_RETURN_IF_ERROR(memory_.MakeReceived(step));
  // As a guess, the others take as much of this rank as it takes of them.
  return options_.expects_packed ? memory_.MakePacked(step) : absl::OkStatus();
}

// If another operation has the worker for long, the end of the group gives the memory back.
void GroupExchange::GiveBackMemory() {
  if (!group_->turn.Take(options_.turn_timeout)) return;
  const absl::Status unmapped = memory_.UnmapAll();
  group_->turn.GiveBack();
  if (!unmapped.ok()) options_.on_break(unmapped);
}

void GroupExchange::RunExchange(const absl::Status& prepared) {
  const absl::Time begin = prepared_ = Clock::Real().SteadyNow();
  const bool turn = prepared.ok() && group_->turn.Take(options_.turn_timeout);
  const absl::Status exchanged = !prepared.ok() ? prepared : turn ? Exchange() : Busy();
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
       {"steps", steps_},
       {"prepared_seconds", absl::ToDoubleSeconds(prepared_ - begin)},
       {"seconds", absl::ToDoubleSeconds(Clock::Real().SteadyNow() - begin)},
       {"error", exchanged}});
  if (!exchanged.ok() && !stopping) {
    if (!failed_in_waiting_) options_.on_break(exchanged);
    options_.on_error(exchanged);
  }
  pipe_.End();  // after an error the worker does not answer any more, or no step is under way
  if (turn) group_->turn.GiveBack();
}

absl::Status GroupExchange::Busy() const {
  return MakeError(Reason::kTransportFailed, "an exchange over NCCL: cairn-gpu-worker is busy with another one",
                   {{"ranks", absl::StrCat(options_.rank)}});
}

absl::Status GroupExchange::Exchange() {
  CAIRN_RETURN_IF_ERROR(TakeWindows());
  CAIRN_RETURN_IF_ERROR(MakeMemory());
  CAIRN_RETURN_IF_ERROR(Agree());
  std::vector<ExchangeTransfer> transfers = Receives();
  for (const ExchangeTransfer& sent : Sends()) transfers.push_back(sent);
  course_ = MakeCourse(transfers);
  CAIRN_RETURN_IF_ERROR(MakePacked());
  prepared_ = Clock::Real().SteadyNow();
  CAIRN_RETURN_IF_ERROR(pipe_.Start());
  {
    MutexLock lock(mutex_);
    stepping_ = true;
  }
  for (const HeldWindow& held : receives_) {
    if (held.window.copies.bytes > 0) continue;  // else it is in no step
    consumer_->HandOutHeld(held, memory_.received(0).id, memory_.received(0).memory->bytes(), 0, [] {});
  }
  for (const ExchangeRound& round : course_) CAIRN_RETURN_IF_ERROR(RunRound(round));
  if (pace_ != nullptr) pace_->Pass(UINT32_MAX);
  // The trainer may copy still, which needs the agent's memory but not the worker's. All bytes have come, so the load
  // does not fail if the worker does now.
  if (const absl::Status unmapped = memory_.UnmapAll(); !unmapped.ok()) options_.on_break(unmapped);
  return absl::OkStatus();
}

absl::Status GroupExchange::RunRound(const ExchangeRound& round) {
  CAIRN_RETURN_IF_ERROR(AwaitRound(round));
  for (const ExchangeStep& step : round.steps) CAIRN_RETURN_IF_ERROR(BeginStep(step));
  CAIRN_RETURN_IF_ERROR(pipe_.Drain());
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

uint64_t GroupExchange::StepBytes() const { return StepBytes(Peers(*group_), options_.round_bytes); }

uint64_t GroupExchange::StepBytes(uint64_t peers, uint64_t round_bytes) {
  // Two steps' windows from all peers, and what two steps pack for them, together take two rounds: as much as the
  // windows of a load that goes over the host.
  return peers * std::max(kSmallestWindow, std::min(round_bytes / 2, kLargestStep) / peers);
}

uint64_t GroupExchange::MemoryOf(uint64_t peers, uint64_t round_bytes, uint64_t taken, uint64_t lent) {
  const uint64_t step = StepBytes(std::max<uint64_t>(1, peers), round_bytes);
  uint64_t bytes = 0;
  for (const uint64_t each : {std::max<uint64_t>(1, std::min(step, taken)), std::min(step, peers * lent)}) {
    bytes += ExchangeMemory::kWindows * RoundUpToPages(each);
  }
  return bytes;
}

absl::Status GroupExchange::TakeWindows() {
  CAIRN_ASSIGN_OR_RETURN(receives_, consumer_->TakeHeld(StepBytes() / Peers(*group_)));
  for (const HeldWindow& held : receives_) {
    if (group_->IndexOf(held.rank) < group_->ranks.size()) continue;
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
    transfers.push_back({group_->IndexOf(receives_[i].rank), false, window.round, window.window, window.copies.bytes, i,
                         window.broadcast});
  }
  return transfers;
}

std::vector<ExchangeTransfer> GroupExchange::Sends() const {
  std::vector<ExchangeTransfer> transfers;
  for (size_t i = 0; i < sends_.size(); ++i) {
    const OfferedCopies& window = sends_[i].window;
    const uint32_t peer = group_->IndexOf(window.broadcast ? options_.rank : sends_[i].consumer);
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
  return memory_.MakeReceived(in);
}

absl::Status GroupExchange::MakePacked() {
  uint64_t packed = 0;
  for (const ExchangeRound& round : course_) {
    for (const ExchangeStep& step : round.steps) {
      uint64_t bytes = 0;
      for (const ExchangeTransfer& transfer : step.transfers) {
        if (transfer.send && !IsContiguous(sends_[transfer.index].window.copies)) bytes += transfer.bytes;
      }
      packed = std::max(packed, bytes);
    }
  }
  return memory_.MakePacked(packed);
}

absl::Status GroupExchange::BeginStep(const ExchangeStep& step) {
  CAIRN_RETURN_IF_ERROR(pipe_.AwaitRoom());
  const size_t place = steps_++ % StepPipe::kPlaces;
  Arriving arriving;
  worker::Step request = MakeStep(step, place, arriving);
  CAIRN_RETURN_IF_ERROR(pipe_.AwaitPlace(place));
  const size_t holders = arriving.size();
  return pipe_.Post(step, std::move(request), place, holders,
                    [this, place, arriving = std::move(arriving)] { HandOut(place, arriving); });
}

worker::Step GroupExchange::MakeStep(const ExchangeStep& step, size_t place, Arriving& arriving) {
  source_.BeginStep();
  worker::Step request;
  uint64_t received = 0;
  for (const ExchangeTransfer& transfer : step.transfers) {
    worker::Transfer& moved = *request.add_transfers();
    moved.set_peer(transfer.peer);
    moved.set_broadcast(transfer.broadcast);
    if (transfer.send) {
      source_.Send(sends_[transfer.index].window.copies, moved);
      continue;
    }
    moved.set_memory(memory_.received(place).number);
    moved.set_offset(received);
    moved.set_bytes(transfer.bytes);
    arriving.emplace_back(transfer.index, received);
    received += transfer.bytes;
  }
  return request;
}

void GroupExchange::HandOut(size_t place, const Arriving& arriving) {
  const ExchangeMemory::Window& received = memory_.received(place);
  for (const auto& [index, offset] : arriving) {
    consumer_->HandOutHeld(receives_[index], received.id, received.memory->bytes(), offset,
                           [this, place] { pipe_.Release(place); });
  }
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
