#include "agent/transport/shard_fetcher.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/transport/copy_stream.h"
#include "agent/transport/local_peer.h"
#include "agent/transport/transfer_peer.h"
#include "common/base/clock.h"
#include "common/base/time_proto.h"
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

ShardFetcher::ShardFetcher(SaveImagePtr target, const v1::SaveOrder& order, const PeerMap& peers,
                           ShardFetcherOptions options)
    : target_(std::move(target)),
      step_(order.step()),
      attempt_(order.attempt()),
      transfer_token_(order.transfer_token()),
      options_(std::move(options)) {
  for (const MovedIn& moved : target_->moved_in) sources_[moved.from_rank].rank = moved.from_rank;
  for (auto& [rank, source] : sources_) {
    if (const auto peer = peers.find(rank); peer != peers.end()) source.peer = peer->second;
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
  MarkWaiting(source);  // also of one that does not answer, so that it is the one that is named
  absl::Time failing_since = absl::InfiniteFuture();
  absl::Duration pause = kFirstPause;
  while (true) {
    absl::Status answered;
    v1::AwaitRoundResponse response;
    CAIRN_RETURN_IF_ERROR(AskOnce(source, answered, response));
    if (answered.ok() && response.ready()) {
      CAIRN_RETURN_IF_ERROR(TakeOffsets(source, response));
      return source.mapped ? MapSlab(source, response) : absl::OkStatus();
    }
    if (answered.ok()) {  // not yet: the call has waited already
      failing_since = absl::InfiniteFuture();
      continue;
    }
    CAIRN_RETURN_IF_ERROR(CheckPassing(source, answered, failing_since));
    Pause(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

absl::Status ShardFetcher::AskOnce(Source& source, absl::Status& answered, v1::AwaitRoundResponse& response) {
  const auto channel = source.channel->Await();
  answered = channel.status();
  v1::AwaitRoundRequest request;
  *request.mutable_transfer() = Identity(source);
  SetDuration(kRoundWait, *request.mutable_max_wait());
  grpc::ClientContext context;
  PrepareCall(context, kRoundWait + kCallMargin);
  CAIRN_RETURN_IF_ERROR(BeginCall(context));
  if (channel.ok()) {
    answered = PeerError(source, v1::TransferService::NewStub(*channel)->AwaitRound(&context, request, &response));
  }
  return EndCall(context);
}

absl::Status ShardFetcher::CheckPassing(Source& source, const absl::Status& error, absl::Time& failing_since) {
  if (HasReason(error, Reason::kPlanUnknown)) {  // it has not heard of the save yet
    failing_since = absl::InfiniteFuture();
    return absl::OkStatus();
  }
  if (HasReason(error, Reason::kAgentUnreachable)) {
    const absl::Time now = Clock::Real().SteadyNow();
    failing_since = std::min(failing_since, now);
    if (now - failing_since < options_.unreachable_timeout) return absl::OkStatus();
    return Failed(source, std::string(error.message()));
  }
  // The bytes that the agent before had staged are gone.
  if (HasReason(error, Reason::kStaleIncarnation)) return Failed(source, "its agent was restarted");
  return error;
}

void ShardFetcher::Pause(absl::Duration pause) {
  const absl::Time until = Clock::Real().SteadyNow() + pause;
  MutexLock lock(mutex_);
  while (!stopped_) {
    const absl::Duration left = until - Clock::Real().SteadyNow();
    if (left <= absl::ZeroDuration()) return;
    changed_.WaitFor(mutex_, left);
  }
}

absl::Status ShardFetcher::TakeOffsets(Source& source, const v1::AwaitRoundResponse& staged) {
  std::map<uint32_t, uint64_t> lent_bytes;  // by shard
  for (const v1::StagedShard& shard : staged.staged_shards()) {
    if (shard.offset() > staged.bytes() || shard.bytes() > staged.bytes() - shard.offset()) {
      return Failed(source, absl::StrCat("its shard ", shard.shard(), " lies outside of its staging buffer"));
    }
    source.offset[shard.shard()] = shard.offset();
    lent_bytes[shard.shard()] = shard.bytes();
  }
  for (const MovedIn& moved : target_->moved_in) {
    if (moved.from_rank != source.rank) continue;
    const auto lent = lent_bytes.find(moved.from_shard);
    if (lent == lent_bytes.end() || lent->second != moved.item.bytes()) {
      return Failed(source,
                    absl::StrCat("it does not lend ", moved.item.name, ", by the plan ", moved.item.bytes(), " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status ShardFetcher::MapSlab(Source& source, const v1::AwaitRoundResponse& staged) {
  auto memory = LentMemory::Map(source.peer.descriptor_socket(), staged.descriptor_id(), staged.bytes(), geteuid());
  if (!memory.ok()) {
    const bool unsealed = HasReason(memory.status(), Reason::kMemoryUnsealed);
    return Failed(source, std::string(memory.status().message()),
                  unsealed ? Reason::kMemoryUnsealed : Reason::kTransportFailed);
  }
  source.memory = *std::move(memory);
  return absl::OkStatus();
}

absl::Status ShardFetcher::BeginCall(grpc::ClientContext& context) {
  MutexLock lock(mutex_);
  if (stopped_) return Stopped();
  calls_.insert(&context);
  return absl::OkStatus();
}

absl::Status ShardFetcher::EndCall(grpc::ClientContext& context) {
  MutexLock lock(mutex_);
  calls_.erase(&context);
  return stopped_ ? Stopped() : absl::OkStatus();
}

void ShardFetcher::MarkWaiting(Source& source) {
  MutexLock lock(mutex_);
  source.waiting = true;
}

absl::Status ShardFetcher::PeerError(const Source& source, const grpc::Status& status) const {
  return CallError(status, ServerRole::kAgent, source.channel->name());
}

absl::Status ShardFetcher::Resolve(Source& source) {
  {
    MutexLock lock(mutex_);
    while (source.resolving && !stopped_) changed_.Wait(mutex_);
    if (stopped_) return Stopped();
    if (source.ready || !source.failure.ok()) return source.failure;
    if (source.peer.transfer_address().empty()) return Failed(source, "its address is not known");
    source.resolving = true;
    if (source.channel == nullptr) source.channel = ChannelTo(source.peer, options_.tokens);
  }
  source.mapped = options_.shared_memory && LendsMemoryHere(source.peer, options_.boot_id);
  Log(LogLevel::kInfo, "save_source",
      {{"step", step_}, {"source", source.rank}, {"transport", source.mapped ? "shared-memory" : "grpc"}});
  const absl::Status status = AwaitStaged(source);
  MutexLock lock(mutex_);
  source.resolving = false;
  source.waiting = false;
  source.ready = status.ok();
  source.failure = status;
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
  v1::Copy* copy = request.add_copies();
  copy->set_source_offset(offset);
  copy->set_element_bytes(bytes);
  const auto channel = source.channel->Await();
  grpc::ClientContext context;
  PrepareCall(context, kFetchTimeout);
  CAIRN_RETURN_IF_ERROR(BeginCall(context));
  if (!channel.ok()) {
    CAIRN_RETURN_IF_ERROR(EndCall(context));
    return Failed(source, std::string(channel.status().message()));
  }
  const StreamedCopies streamed = StreamCopies(*v1::TransferService::NewStub(*channel), context, request, to, bytes);
  CAIRN_RETURN_IF_ERROR(EndCall(context));
  if (!streamed.too_much && !streamed.ended.ok()) {
    const absl::Status error = PeerError(source, streamed.ended);
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
  std::vector<std::shared_ptr<PeerChannel>> channels;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    for (grpc::ClientContext* call : calls_) call->TryCancel();
    for (const auto& [rank, source] : sources_) {
      if (source.channel != nullptr) channels.push_back(source.channel);
    }
    changed_.NotifyAll();
  }
  for (const auto& channel : channels) channel->Cancel();
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
  std::string used = mapped_used_ ? "shared-memory" : "";
  if (fetched_used_) absl::StrAppend(&used, used.empty() ? "" : "+", "grpc");
  if (!used.empty() && !refusal_.empty()) absl::StrAppend(&used, " (nccl: ", refusal_, ")");
  return used;
}

void ShardFetcher::Decide(const v1::Exchange& exchange) {
  MutexLock lock(mutex_);
  refusal_ = exchange.reason();
}

}  // namespace cairn
