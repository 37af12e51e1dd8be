#include "agent/transport/nccl/exchanged_shards.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/process/log.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {

ExchangedShards::ExchangedShards(std::unique_ptr<ShardSource> host, ExchangedShardsOptions options)
    : host_(std::move(host)), options_(std::move(options)) {}

ExchangedShards::~ExchangedShards() {
  Stop();
  AwaitEnd();
}

absl::Status ExchangedShards::Stopped() const {
  return MakeError(Reason::kSaveCancelled, absl::StrCat("moving shards of step ", options_.step, " was stopped"));
}

void ExchangedShards::Decide(const v1::Exchange& exchange) {
  {
    MutexLock lock(mutex_);
    required_ = exchange.required();
  }
  if (exchange.way() == v1::Exchange::HOST) GoByHost(exchange.reason());
  if (exchange.way() == v1::Exchange::GROUP) BeginExchange(exchange.group());
}

void ExchangedShards::BeginExchange(uint64_t group) {
  {
    MutexLock lock(mutex_);
    if (making_ || exchange_ != nullptr || by_host_ || stopped_) return;
    making_ = true;
  }
  auto made = options_.make(group);
  const absl::Status begun = made.ok() ? (*made)->Start() : made.status();
  bool stopped = false;
  {
    MutexLock lock(mutex_);
    making_ = false;
    if (begun.ok()) exchange_ = *made;
    stopped = stopped_;
    changed_.NotifyAll();
  }
  if (!begun.ok()) {
    options_.give_up(group, begun);  // the others wait for this rank
    GoByHost(std::string(begun.message()));
  } else if (stopped) {
    (*made)->Cancel(Stopped());
  }
}

void ExchangedShards::GoByHost(const std::string& reason) {
  std::shared_ptr<MovedExchange> exchange;
  {
    MutexLock lock(mutex_);
    exchange = exchange_;
    const bool complete = exchange != nullptr && exchange->over() && exchange->AwaitEnd().ok();
    if (complete || stopped_ || std::exchange(by_host_, true)) return;
    refusal_ = reason;
    changed_.NotifyAll();
  }
  Log(exchange == nullptr ? LogLevel::kInfo : LogLevel::kWarn, "transport",
      {{"step", options_.step}, {"transport", absl::StrCat("grpc (nccl: ", reason, ")")}});
  if (exchange != nullptr) exchange->Cancel(MakeError(Reason::kTransportFailed, reason));
}

absl::StatusOr<std::shared_ptr<MovedExchange>> ExchangedShards::AwaitDecision() {
  MutexLock lock(mutex_);
  while (exchange_ == nullptr && !by_host_ && !stopped_) changed_.Wait(mutex_);
  if (stopped_) return Stopped();
  return exchange_;
}

absl::Status ExchangedShards::CheckAllowed(const absl::Status& failure) {
  MutexLock lock(mutex_);
  if (stopped_) return Stopped();
  if (!required_) return absl::OkStatus();
  // The coordinator knows better than one rank which of them is at fault.
  return Annotate(failure.ok() ? MakeError(Reason::kTransportFailed, refusal_) : failure, "--nccl-saves=require",
                  {{"exchange", "nccl"}});
}

absl::Status ExchangedShards::Fetch(size_t index, uint64_t offset, uint64_t bytes, char* to) {
  if (!options_.exchanged[index]) return host_->Fetch(index, offset, bytes, to);
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<MovedExchange> exchange, AwaitDecision());
  absl::Status failure;
  if (exchange != nullptr) {
    failure = exchange->Await(index, offset + bytes);
    if (failure.ok()) {
      const char* from = exchange->place(index) + offset;
      if (from != to) std::memcpy(to, from, bytes);
      return absl::OkStatus();
    }
    GoByHost(std::string(failure.message()));
  }
  CAIRN_RETURN_IF_ERROR(CheckAllowed(failure));
  return host_->Fetch(index, offset, bytes, to);
}

void ExchangedShards::AwaitEnd() {
  std::shared_ptr<MovedExchange> exchange;
  {
    MutexLock lock(mutex_);
    while (making_ || (exchange_ == nullptr && !by_host_ && !stopped_)) changed_.Wait(mutex_);
    exchange = exchange_;
  }
  if (exchange == nullptr) return;
  // One that sends only goes on without an error: those who lack bytes say so.
  if (const absl::Status ended = exchange->AwaitEnd(); !ended.ok()) GoByHost(std::string(ended.message()));
}

void ExchangedShards::Stop() {
  std::shared_ptr<MovedExchange> exchange;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    exchange = exchange_;
    changed_.NotifyAll();
  }
  if (exchange != nullptr) exchange->Cancel(Stopped());
  host_->Stop();
}

std::vector<uint32_t> ExchangedShards::waiting_for() {
  std::vector<uint32_t> ranks = host_->waiting_for();
  std::shared_ptr<MovedExchange> exchange;
  {
    MutexLock lock(mutex_);
    if (by_host_) return ranks;
    exchange = exchange_;
  }
  if (exchange != nullptr && exchange->over()) return ranks;
  ranks.insert(ranks.end(), options_.sources.begin(), options_.sources.end());
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::string ExchangedShards::transport() {
  const std::string host = host_->transport();
  MutexLock lock(mutex_);
  std::string used = exchange_ != nullptr && exchange_->used() ? "nccl" : "";
  if (!host.empty()) absl::StrAppend(&used, used.empty() ? "" : "+", host);
  if (!host.empty() && !refusal_.empty()) absl::StrAppend(&used, " (nccl: ", refusal_, ")");
  return used;
}

}  // namespace cairn
