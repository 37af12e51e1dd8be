#include "agent/transport/shard_fetcher.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/transport/can_connect.h"
#include "agent/transport/copy_stream.h"
#include "common/base/clock.h"
#include "common/process/log.h"
#include "common/rpc/endpoint.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr absl::Duration kRoundWait = absl::Seconds(10);
constexpr absl::Duration kCallMargin = absl::Seconds(5);
// The time-out of one call, which fetches at most a chunk of the writer.
constexpr absl::Duration kFetchTimeout = absl::Seconds(60);
constexpr absl::Duration kFirstPause = absl::Milliseconds(10);
constexpr absl::Duration kLongestPause = absl::Milliseconds(500);

}  // namespace

ShardFetcher::ShardFetcher(SaveImagePtr target, const v1::SaveOrder& order, ShardFetcherOptions options)
    : target_(std::move(target)),
      step_(order.step()),
      attempt_(order.attempt()),
      transfer_token_(order.transfer_token()),
      options_(std::move(options)) {
  for (const MovedIn& moved : target_->moved_in) sources_[moved.from_rank].rank = moved.from_rank;
  for (const v1::TransferPeer& peer : order.peer()) {
    if (const auto source = sources_.find(peer.rank()); source != sources_.end()) source->second.peer = peer;
  }
}

ShardFetcher::~ShardFetcher() { Stop(); }

absl::Status ShardFetcher::Stopped() const {
  return MakeError(Reason::kSaveCancelled, absl::StrCat("moving shards of step ", step_, " was stopped"));
}

absl::Status ShardFetcher::Failed(const Source& source, const std::string& what, Reason reason) const {
  return MakeError(
      reason,
      absl::StrCat("rank ", options_.rank, " cannot get the shards that it writes for rank ", source.rank, ": ", what),
      {{"source_rank", absl::StrCat(source.rank)}});
}

v1::TransferIdentity ShardFetcher::Identity(const Source& source) const {
  v1::TransferIdentity identity;
  identity.set_job(options_.job);
  identity.set_plan_digest(target_->plan_digest);
  identity.set_consumer_rank(options_.rank);
  identity.set_source_rank(source.rank);
  identity.set_source_incarnation(source.peer.incarnation());
  identity.set_token(transfer_token_);
  identity.set_step(step_);
  identity.set_attempt(attempt_);
  return identity;
}

absl::Status ShardFetcher::AwaitStaged(Source& source) {
  absl::Time failing_since = absl::InfiniteFuture();
  absl::Duration pause = kFirstPause;
  while (true) {
    grpc::ClientContext context;
    PrepareCall(context, kRoundWait + kCallMargin, options_.token);
    {
      MutexLock lock(mutex_);
      if (stopped_) return Stopped();
      calls_.insert(&context);
    }
    v1::AwaitRoundRequest request;
    v1::AwaitRoundResponse response;
    *request.mutable_transfer() = Identity(source);
    request.mutable_max_wait()->set_seconds(absl::ToInt64Seconds(kRoundWait));
    const grpc::Status answered = source.stub->AwaitRound(&context, request, &response);
    MutexLock lock(mutex_);
    calls_.erase(&context);
    if (stopped_) return Stopped();
    if (answered.ok() && response.ready()) {
      source.slab_bytes = response.bytes();
      for (const v1::StagedShard& shard : response.staged()) {
        if (shard.offset() > response.bytes() || shard.bytes() > response.bytes() - shard.offset()) {
          return Failed(source, absl::StrCat("its shard ", shard.shard(), " lies outside of its slab"));
        }
        source.offset[shard.shard()] = shard.offset();
      }
      for (const MovedIn& moved : target_->moved_in) {
        if (moved.from_rank != source.rank) continue;
        const auto found =
            std::find_if(response.staged().begin(), response.staged().end(),
                         [&](const v1::StagedShard& shard) { return shard.shard() == moved.from_shard; });
        if (found == response.staged().end() || found->bytes() != moved.item.bytes()) {
          return Failed(source, absl::StrCat("it does not lend ", moved.item.name, ", by the plan ", moved.item.bytes(),
                                             " bytes"));
        }
      }
      if (source.mapped) {
        auto memory =
            LentMemory::Map(source.peer.descriptor_socket(), response.descriptor_id(), response.bytes(), geteuid());
        if (!memory.ok()) {
          const bool unsealed = HasReason(memory.status(), Reason::kMemoryUnsealed);
          return Failed(source, std::string(memory.status().message()),
                        unsealed ? Reason::kMemoryUnsealed : Reason::kTransportFailed);
        }
        source.memory = *std::move(memory);
      }
      return absl::OkStatus();
    }
    if (answered.ok()) {  // not yet
      failing_since = absl::InfiniteFuture();
      source.waiting = true;
      continue;
    }
    const absl::Status status = CallError(
        answered, PeerKind::kAgent, absl::StrCat("of rank ", source.rank, " at ", source.peer.transfer_address()));
    const absl::Time now = Clock::Real().SteadyNow();
    if (HasReason(status, Reason::kPlanUnknown)) {
      failing_since = absl::InfiniteFuture();
      source.waiting = true;
    } else if (HasReason(status, Reason::kAgentUnreachable)) {
      failing_since = std::min(failing_since, now);
      if (now - failing_since >= options_.unreachable_timeout) return Failed(source, std::string(status.message()));
    } else if (HasReason(status, Reason::kStaleIncarnation)) {
      return Failed(source, "its agent was restarted");  // what the one before had staged is gone
    } else {
      return status;
    }
    const absl::Time until = now + pause;
    while (!stopped_ && Clock::Real().SteadyNow() < until) changed_.WaitFor(mutex_, until - Clock::Real().SteadyNow());
    pause = std::min(2 * pause, kLongestPause);
  }
}

absl::Status ShardFetcher::Resolve(Source& source) {
  {
    MutexLock lock(mutex_);
    while (source.resolving && !stopped_) changed_.Wait(mutex_);
    if (stopped_) return Stopped();
    if (source.ready) return absl::OkStatus();
    if (source.peer.transfer_address().empty()) return Failed(source, "its address is not known");
    source.resolving = true;
    source.mapped = options_.shared_memory && !source.peer.boot_id().empty() &&
                    source.peer.boot_id() == options_.boot_id && CanConnect(source.peer.descriptor_socket());
    if (source.stub == nullptr) source.stub = v1::TransferService::NewStub(MakeChannel(source.peer.transfer_address()));
  }
  Log(LogLevel::kInfo, "save_source",
      {{"step", step_}, {"source", source.rank}, {"transport", source.mapped ? "shared-memory" : "grpc"}});
  const absl::Status status = AwaitStaged(source);
  MutexLock lock(mutex_);
  source.resolving = false;
  source.waiting = false;
  source.ready = status.ok();
  if (source.ready) (source.mapped ? mapped_used_ : fetched_used_) = true;
  changed_.NotifyAll();
  return status;
}

absl::Status ShardFetcher::Fetch(size_t index, uint64_t offset, uint64_t bytes, char* to) {
  const MovedIn& moved = target_->moved_in[index];
  Source& source = sources_.at(moved.from_rank);
  CAIRN_RETURN_IF_ERROR(Resolve(source));
  return Copy(source, source.offset.at(moved.from_shard) + offset, bytes, to);
}

absl::Status ShardFetcher::Copy(const Source& source, uint64_t offset, uint64_t bytes, char* to) {
  if (source.mapped) {
    std::memcpy(to, source.memory->data() + offset, bytes);
    return absl::OkStatus();
  }
  v1::FetchCopiesRequest request;
  *request.mutable_transfer() = Identity(source);
  v1::Copy* copy = request.add_copy();
  copy->set_source_offset(offset);
  copy->set_element_bytes(bytes);
  grpc::ClientContext context;
  PrepareCall(context, kFetchTimeout, options_.token);
  {
    MutexLock lock(mutex_);
    if (stopped_) return Stopped();
    calls_.insert(&context);
  }
  const StreamedCopies streamed = StreamCopies(*source.stub, context, request, to, bytes);
  MutexLock lock(mutex_);
  calls_.erase(&context);
  if (stopped_) return Stopped();
  if (!streamed.too_much && !streamed.ended.ok()) {
    const absl::Status error = CallError(streamed.ended, PeerKind::kAgent,
                                         absl::StrCat("of rank ", source.rank, " at ", source.peer.transfer_address()));
    const bool gone = HasReason(error, Reason::kAgentUnreachable) || HasReason(error, Reason::kStaleIncarnation);
    return gone ? Failed(source, std::string(error.message())) : error;
  }
  if (streamed.too_much || streamed.bytes != bytes) {
    return Failed(source, absl::StrCat("it sent ", streamed.bytes, streamed.too_much ? " bytes and more" : " bytes",
                                       " instead of ", bytes));
  }
  return absl::OkStatus();
}

void ShardFetcher::Stop() {
  MutexLock lock(mutex_);
  stopped_ = true;
  for (grpc::ClientContext* call : calls_) call->TryCancel();
  changed_.NotifyAll();
}

std::vector<uint32_t> ShardFetcher::waiting_for() {
  MutexLock lock(mutex_);
  std::vector<uint32_t> ranks;
  for (const auto& [rank, source] : sources_) {
    if (source.waiting) ranks.push_back(rank);
  }
  return ranks;
}

std::string ShardFetcher::transport() {
  MutexLock lock(mutex_);
  if (mapped_used_ && fetched_used_) return "shared-memory+grpc";
  return mapped_used_ ? "shared-memory" : fetched_used_ ? "grpc" : "";
}

}  // namespace cairn
