#include "agent/transport/load_consumer.h"

#include <grpcpp/alarm.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/transport/can_connect.h"
#include "agent/transport/copy_packer.h"
#include "agent/transport/copy_stream.h"
#include "agent/transport/transfer_service.h"
#include "common/base/clock.h"
#include "common/process/log.h"
#include "common/rpc/endpoint.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr absl::Duration kRoundWait = absl::Seconds(10);
constexpr absl::Duration kCallMargin = absl::Seconds(5);
constexpr absl::Duration kRetryPause = absl::Milliseconds(50);
// A source that has not heard of the load yet, or has ended it already; the coordinator's word usually comes first.
constexpr absl::Duration kUnknownTimeout = absl::Minutes(2);
// One FetchCopies request has at most so many copies, which keeps it far below the message limit.
constexpr size_t kCopiesPerFetch = 8192;
constexpr absl::Duration kFetchTimeout = absl::Minutes(10);

void ToProto(absl::Duration duration, google::protobuf::Duration* proto) {
  const int64_t nanos = absl::ToInt64Nanoseconds(duration);
  proto->set_seconds(nanos / 1'000'000'000);
  proto->set_nanos(static_cast<int32_t>(nanos % 1'000'000'000));
}

// An error that a source gave for an answer, with its name.
absl::Status ToldBy(uint32_t rank, const absl::Status& error) {
  return Annotate(error, absl::StrCat("from rank ", rank), {{"ranks", absl::StrCat(rank)}});
}

}  // namespace

// An AwaitRound under way, or waiting to be tried again.
struct LoadConsumer::Call {
  size_t source = 0;
  uint32_t round = 0;
  bool notice = false;  // only tells releases
  std::shared_ptr<v1::TransferService::Stub> stub;
  std::unique_ptr<grpc::ClientContext> context;
  v1::AwaitRoundRequest request;
  v1::AwaitRoundResponse response;
  grpc::Alarm alarm;
  absl::Time failing_since = absl::InfiniteFuture();
};

LoadConsumer::LoadConsumer(ReadPlanPtr plan, const v1::LoadOrder& order, std::shared_ptr<ByteServer> own,
                           BufferPool& pool, LoadConsumerOptions options)
    : plan_(std::move(plan)),
      number_(order.number()),
      transfer_token_(order.transfer_token()),
      own_(std::move(own)),
      pool_(pool),
      options_(std::move(options)) {
  std::map<uint32_t, size_t> by_rank;
  bool fetches = false;
  for (const v1::Copy& copy : plan_->copy()) {
    auto [entry, fresh] = by_rank.emplace(copy.source_rank(), sources_.size());
    if (fresh) {
      Source source;
      source.rank = copy.source_rank();
      source.local = source.rank == options_.rank;
      if (source.local) {
        source.mapped = true;
        source.descriptor_socket = options_.descriptor_socket;
      } else {
        for (const v1::TransferPeer& peer : order.peer()) {
          if (peer.rank() != source.rank) continue;
          source.incarnation = peer.incarnation();
          source.address = peer.transfer_address();
          source.descriptor_socket = peer.descriptor_socket();
          source.mapped = options_.shared_memory && !peer.boot_id().empty() && peer.boot_id() == options_.boot_id &&
                          CanConnect(peer.descriptor_socket());
        }
        fetches = fetches || !source.mapped;
        source.stub = v1::TransferService::NewStub(MakeChannel(source.address));
      }
      sources_.push_back(std::move(source));
    }
    Source& source = sources_[entry->second];
    if (!source.copies.contains(copy.round())) ++to_come_;
    source.copies[copy.round()].push_back(copy);
  }
  for (Source& source : sources_) {
    for (const auto& [round, copies] : source.copies) source.rounds.push_back(round);
    if (!source.local) {
      Log(LogLevel::kInfo, "load_source",
          {{"load", number_},
           {"source", source.rank},
           {"rounds", source.rounds.size()},
           {"transport", source.mapped ? "shared-memory" : "grpc"}});
    }
  }
  if (fetches) fetchers_ = std::make_unique<TaskQueue>(2);
}

LoadConsumer::~LoadConsumer() { Stop(MakeError(Reason::kInterrupted, "the load has ended")); }

v1::TransferIdentity LoadConsumer::Identity(const Source& source) const {
  v1::TransferIdentity identity;
  identity.set_job(options_.job);
  identity.set_plan_digest(plan_->plan_digest());
  identity.set_load_number(TransferService::Key::OfLoad(plan_->plan_digest(), transfer_token_).load_number);
  identity.set_consumer_rank(options_.rank);
  identity.set_source_rank(source.rank);
  identity.set_source_incarnation(source.incarnation);
  identity.set_token(transfer_token_);
  return identity;
}

// All rounds below are done with.
uint32_t LoadConsumer::ReleasedBelow(const Source& source) const {
  if (!source.held.empty()) return *source.held.begin();
  if (source.next < source.rounds.size()) return source.rounds[source.next];
  return source.rounds.empty() ? 0 : source.rounds.back() + 1;
}

void LoadConsumer::Start() {
  size_t sources = 0;
  {
    MutexLock lock(mutex_);
    sources = sources_.size();
    for (const Source& source : sources_) {
      if (!source.local && source.address.empty()) {
        error_ = MakeError(Reason::kTransportFailed,
                           absl::StrCat("no address of rank ", source.rank, ", which reads for rank ", options_.rank),
                           {{"rank", absl::StrCat(source.rank)}});
      }
    }
    if (!error_.ok()) sources = 0;
  }
  for (size_t i = 0; i < sources; ++i) AwaitNext(i);
  absl::Status error;
  {
    MutexLock lock(mutex_);
    error = error_;
  }
  if (!error.ok()) options_.on_error(error);
  Answer();
}

void LoadConsumer::AwaitNext(size_t number) {
  auto call = std::make_shared<Call>();
  bool local = false;
  uint32_t released_below = 0;
  {
    MutexLock lock(mutex_);
    Source& source = sources_[number];
    if (stopped_ || !error_.ok() || source.next >= source.rounds.size()) return;
    call->source = number;
    call->round = source.rounds[source.next];
    call->stub = source.stub;
    local = source.local;
    released_below = ReleasedBelow(source);
  }
  if (!local) return StartCall(std::move(call));
  own_->Await(options_.rank, call->round, released_below, [this, number, round = call->round](auto buffer) {
    if (buffer.ok()) {
      OnRound(number, round, buffer->descriptor_id, buffer->bytes);
    } else {
      Fail(buffer.status());
    }
  });
}

void LoadConsumer::StartCall(std::shared_ptr<Call> call) {
  Call* const raw = call.get();
  {
    MutexLock lock(mutex_);
    if (stopped_ || !error_.ok()) {
      calls_.erase(raw);
      changed_.NotifyAll();
      return;
    }
    const Source& source = sources_[raw->source];
    *raw->request.mutable_transfer() = Identity(source);
    raw->request.set_round(raw->round);
    raw->request.set_released_below(ReleasedBelow(source));
    const absl::Duration wait = raw->notice ? absl::ZeroDuration() : kRoundWait;
    ToProto(wait, raw->request.mutable_max_wait());
    raw->response.Clear();
    raw->context = std::make_unique<grpc::ClientContext>();
    PrepareCall(*raw->context, wait + kCallMargin, options_.token);
    calls_[raw] = std::move(call);
  }
  raw->stub->async()->AwaitRound(raw->context.get(), &raw->request, &raw->response,
                                 [this, raw](const grpc::Status& status) { OnAnswer(*raw, status); });
}

void LoadConsumer::OnAnswer(Call& call, const grpc::Status& answered) {
  const absl::Time now = Clock::Real().SteadyNow();
  absl::Status status;
  std::shared_ptr<Call> kept;
  {
    MutexLock lock(mutex_);
    status = CallError(answered, PeerKind::kAgent,
                       absl::StrCat("of rank ", sources_[call.source].rank, " at ", sources_[call.source].address));
    kept = calls_[&call];
  }
  const auto reason = ReasonOf(status);
  const bool unreachable = reason == Reason::kAgentUnreachable;
  if (status.ok()) {
    call.failing_since = absl::InfiniteFuture();
    if (!call.notice && call.response.ready()) {
      OnRound(call.source, call.round, call.response.descriptor_id(), call.response.bytes());
    } else if (!call.notice) {
      return StartCall(std::move(kept));  // not yet
    }
  } else if (call.notice && !unreachable) {
    // The load is over there: nobody waits for the release.
  } else if (unreachable || reason == Reason::kPlanUnknown) {
    call.failing_since = std::min(call.failing_since, now);
    if (now - call.failing_since < (unreachable ? options_.unreachable_timeout : kUnknownTimeout)) {
      MutexLock lock(mutex_);  // Stop cancels it
      call.alarm.Set(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(kRetryPause),
                     [this, kept](bool) mutable { StartCall(std::move(kept)); });
      return;
    }
    uint32_t rank = 0;
    {
      MutexLock lock(mutex_);
      rank = sources_[call.source].rank;
    }
    Fail(MakeError(
        Reason::kTransportFailed,
        absl::StrCat("rank ", options_.rank, " cannot get its bytes from rank ", rank, ": ", status.message()),
        {{"rank", absl::StrCat(rank)}, {"ranks", absl::StrCat(rank)}}));
  } else if (!call.notice) {
    Fail(ToldBy(call.request.transfer().source_rank(), status));
  }
  MutexLock lock(mutex_);
  calls_.erase(&call);
  kept.reset();  // while this object lives: a channel's last user must not be a callback
  changed_.NotifyAll();
}

// A round stands in its source's buffer.
void LoadConsumer::OnRound(size_t number, uint32_t round, uint64_t descriptor_id, uint64_t bytes) {
  bool mapped = false;
  absl::Status bad;
  std::vector<v1::Copy> copies;
  {
    MutexLock lock(mutex_);
    if (stopped_ || !error_.ok()) return;
    Source& source = sources_[number];
    if (source.next >= source.rounds.size() || source.rounds[source.next] != round) return;
    ++source.next;
    source.held.insert(round);
    mapped = source.mapped;
    if (mapped) {
      v1::LoadBatch batch;
      batch.set_batch(next_batch_++);
      batch.mutable_buffer()->set_descriptor_id(descriptor_id);
      batch.mutable_buffer()->set_bytes(bytes);
      batch.mutable_buffer()->set_descriptor_socket(source.descriptor_socket);
      for (v1::Copy& copy : source.copies[round]) {
        if (bad = CheckSource(copy, bytes); !bad.ok()) break;
        *batch.add_copy() = std::move(copy);
      }
      source.copies.erase(round);
      batches_[batch.batch()] = {number, round, nullptr, 0};
      ready_.push_back(std::move(batch));
      --to_come_;
      if (!source.local) mapped_used_ = true;
    } else {
      copies = std::move(source.copies[round]);
      source.copies.erase(round);
      for (const v1::Copy& copy : copies) {
        if (bad = CheckSource(copy, bytes); !bad.ok()) break;
      }
    }
  }
  if (!bad.ok()) return Fail(bad);
  if (!mapped) {
    auto windows = CutIntoWindows(copies, std::max<uint64_t>(options_.window_bytes / 2, uint64_t{1} << 20));
    if (!windows.ok()) return Fail(windows.status());
    {
      MutexLock lock(mutex_);
      to_come_ += windows->size() - 1;
      sources_[number].fetching[round] = windows->size();
    }
    for (CopyWindow& window : *windows) {
      fetchers_->Post([this, number, round, window = std::move(window)] {
        if (const absl::Status fetched = Fetch(number, round, window); !fetched.ok()) Fail(fetched);
      });
    }
  }
  Answer();
  AwaitNext(number);
}

absl::Status LoadConsumer::Fetch(size_t number, uint32_t round, const CopyWindow& window) {
  const std::vector<v1::Copy>& copies = window.copies;
  const uint64_t bytes = window.bytes;
  const Source* source = nullptr;
  {
    MutexLock lock(mutex_);
    source = &sources_[number];  // sources do not move; what FetchInto reads of them never changes
    while (!stopped_ && error_.ok() && windows_out_ > 0 && windows_out_ + bytes > options_.window_bytes)
      changed_.Wait(mutex_);
    if (stopped_ || !error_.ok()) return absl::OkStatus();
    windows_out_ += bytes;
  }
  const auto fetch = [&]() -> absl::StatusOr<Batch> {
    Batch batch = {number, round, nullptr, 0};
    CAIRN_ASSIGN_OR_RETURN(batch.window, pool_.Take(bytes));
    absl::Status fetched = FetchInto(*source, round, copies, batch.window->data(), bytes);
    if (fetched.ok()) {
      auto id = options_.offer(batch.window);
      if (id.ok()) {
        batch.window_id = *id;
      } else {
        fetched = id.status();
      }
    }
    if (!fetched.ok()) {
      pool_.GiveBack(std::move(batch.window));
      return fetched;
    }
    return batch;
  };
  auto fetched = fetch();
  bool last = false;
  {
    MutexLock lock(mutex_);
    if (!fetched.ok()) {
      windows_out_ -= bytes;
      return fetched.status();
    }
    if (stopped_) {
      options_.withdraw(fetched->window_id);
      pool_.GiveBack(std::move(fetched->window));
      return absl::OkStatus();
    }
    v1::LoadBatch batch;
    batch.set_batch(next_batch_++);
    batch.mutable_buffer()->set_descriptor_id(fetched->window_id);
    batch.mutable_buffer()->set_bytes(fetched->window->bytes());
    batch.mutable_buffer()->set_descriptor_socket(options_.descriptor_socket);
    uint64_t offset = 0;
    for (const v1::Copy& copy : copies) {
      *batch.add_copy() = PackedCopy(copy, offset);
      offset += *CopyBytes(copy);
    }
    fetched->window_bytes = bytes;
    batches_[batch.batch()] = *std::move(fetched);
    ready_.push_back(std::move(batch));
    --to_come_;
    fetched_used_ = true;
    // The bytes are here: the source need not keep them.
    last = --sources_[number].fetching[round] == 0;
    if (last) sources_[number].held.erase(round);
  }
  if (last) SendReleases(number);
  Answer();
  return absl::OkStatus();
}

absl::Status LoadConsumer::FetchInto(const Source& source, uint32_t round, const std::vector<v1::Copy>& copies,
                                     char* window, uint64_t bytes) {
  uint64_t filled = 0;
  bool too_much = false;
  for (size_t first = 0; first < copies.size(); first += kCopiesPerFetch) {
    v1::FetchCopiesRequest request;
    *request.mutable_transfer() = Identity(source);
    request.set_round(round);
    for (size_t i = first; i < std::min(copies.size(), first + kCopiesPerFetch); ++i) {
      v1::Copy* copy = request.add_copy();
      copy->set_source_offset(copies[i].source_offset());
      copy->set_element_bytes(copies[i].element_bytes());
      *copy->mutable_extent() = copies[i].extent();
      *copy->mutable_source_stride() = copies[i].source_stride();
    }
    grpc::ClientContext context;
    PrepareCall(context, kFetchTimeout, options_.token);
    {
      MutexLock lock(mutex_);
      if (stopped_) return MakeError(Reason::kInterrupted, "the load has ended");
      fetches_.insert(&context);
    }
    const StreamedCopies streamed = StreamCopies(*source.stub, context, request, window + filled, bytes - filled);
    filled += streamed.bytes;
    {
      MutexLock lock(mutex_);
      fetches_.erase(&context);
    }
    too_much = streamed.too_much;
    if (too_much) break;
    if (const grpc::Status& ended = streamed.ended; !ended.ok()) {
      const absl::Status error =
          CallError(ended, PeerKind::kAgent, absl::StrCat("of rank ", source.rank, " at ", source.address));
      if (HasReason(error, Reason::kPlanUnknown)) {
        AwaitStop(kUnknownTimeout);
      } else if (!HasReason(error, Reason::kAgentUnreachable)) {
        return ToldBy(source.rank, error);
      }
      return MakeError(
          Reason::kTransportFailed,
          absl::StrCat("rank ", options_.rank, " lost the connection to rank ", source.rank, ": ", error.message()),
          {{"rank", absl::StrCat(source.rank)}, {"ranks", absl::StrCat(source.rank)}});
    }
  }
  if (too_much || filled != bytes) {
    return MakeError(Reason::kTransportFailed,
                     absl::StrCat("rank ", source.rank, " sent ", filled, too_much ? " bytes and more" : " bytes",
                                  " of round ", round, " instead of ", bytes),
                     {{"rank", absl::StrCat(source.rank)}, {"ranks", absl::StrCat(source.rank)}});
  }
  return absl::OkStatus();
}

// Tells a source what is released. Its next AwaitRound would too, but may be under way already.
void LoadConsumer::SendReleases(size_t number) {
  auto call = std::make_shared<Call>();
  uint32_t below = 0;
  bool local = false;
  {
    MutexLock lock(mutex_);
    const Source& source = sources_[number];
    below = ReleasedBelow(source);
    local = source.local;
    call->source = number;
    call->notice = true;
    call->round = below;
    call->stub = source.stub;
  }
  if (local) {
    own_->Release(options_.rank, below);
  } else {
    StartCall(std::move(call));
  }
}

void LoadConsumer::Release(uint64_t number, std::vector<size_t>& sources) {
  const auto found = batches_.find(number);
  if (found == batches_.end()) return;
  Batch& batch = found->second;
  if (batch.window != nullptr) {
    options_.withdraw(batch.window_id);
    windows_out_ -= batch.window_bytes;
    pool_.GiveBack(std::move(batch.window));
    changed_.NotifyAll();
  } else {
    sources_[batch.source].held.erase(batch.round);
    sources.push_back(batch.source);
  }
  batches_.erase(found);
}

uint64_t LoadConsumer::Receive(const std::vector<uint64_t>& released, Done done) {
  uint64_t call = 0;
  std::vector<size_t> sources;
  {
    MutexLock lock(mutex_);
    for (uint64_t batch : released) Release(batch, sources);
    call = next_call_++;
    waiting_.emplace(call, std::move(done));
  }
  for (size_t source : sources) SendReleases(source);
  Answer();
  MutexLock lock(mutex_);
  return waiting_.contains(call) ? call : 0;
}

void LoadConsumer::ReleaseAll() {
  std::vector<size_t> sources;
  {
    MutexLock lock(mutex_);
    if (stopped_ || !error_.ok()) return;
    ready_.clear();
    while (!batches_.empty()) Release(batches_.begin()->first, sources);
  }
  for (size_t source : sources) SendReleases(source);
}

void LoadConsumer::Forget(uint64_t call) {
  MutexLock lock(mutex_);
  waiting_.erase(call);
}

void LoadConsumer::Answer() {
  std::vector<std::pair<Done, absl::StatusOr<Received>>> answers;
  {
    MutexLock lock(mutex_);
    while (!waiting_.empty()) {
      absl::StatusOr<Received> answer = Received();
      if (!error_.ok()) {
        answer = error_;
      } else if (!ready_.empty() || to_come_ == 0) {
        answer->batches.assign(std::make_move_iterator(ready_.begin()), std::make_move_iterator(ready_.end()));
        ready_.clear();
        answer->complete = to_come_ == 0;
      } else {
        break;
      }
      answers.emplace_back(std::move(waiting_.begin()->second), std::move(answer));
      waiting_.erase(waiting_.begin());
    }
  }
  for (auto& [done, answer] : answers) done(std::move(answer));
}

// A source that serves the load no more was told to end it; so will this rank be, with the reason.
void LoadConsumer::AwaitStop(absl::Duration timeout) {
  const absl::Time until = Clock::Real().SteadyNow() + timeout;
  MutexLock lock(mutex_);
  while (!stopped_ && error_.ok()) {
    const absl::Duration left = until - Clock::Real().SteadyNow();
    if (left <= absl::ZeroDuration()) return;
    changed_.WaitFor(mutex_, left);
  }
}

void LoadConsumer::Fail(const absl::Status& status) {
  bool first = false;
  {
    MutexLock lock(mutex_);
    first = error_.ok() && !stopped_;
    if (error_.ok()) error_ = status;
    changed_.NotifyAll();
  }
  Answer();
  if (first) options_.on_error(status);
}

void LoadConsumer::Stop(const absl::Status& why) {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    if (error_.ok()) error_ = why;
    for (auto& [raw, call] : calls_) {
      if (raw->context != nullptr) raw->context->TryCancel();
      raw->alarm.Cancel();
    }
    for (grpc::ClientContext* fetch : fetches_) fetch->TryCancel();
    changed_.NotifyAll();
  }
  Answer();
  if (fetchers_ != nullptr) fetchers_->Stop();
  MutexLock lock(mutex_);
  // Their callbacks use this object. All are cancelled, so this is short.
  while (!calls_.empty()) changed_.Wait(mutex_);
  for (auto& [number, batch] : batches_) {
    if (batch.window == nullptr) continue;
    options_.withdraw(batch.window_id);
    pool_.GiveBack(std::move(batch.window));
  }
  batches_.clear();
}

std::string LoadConsumer::transport() {
  MutexLock lock(mutex_);
  if (mapped_used_ && fetched_used_) return "shared-memory+grpc";
  return mapped_used_ ? "shared-memory" : fetched_used_ ? "grpc" : "";
}

}  // namespace cairn
