#include "agent/transport/transfer_service.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/transport/copy_packer.h"
#include "common/base/digest.h"
#include "common/base/time_proto.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/reactor.h"
#include "common/rpc/token.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr absl::Duration kLongestWait = absl::Seconds(30);
// The answer to what a consumer takes waits so long for the other consumers; then it asks again.
constexpr absl::Duration kOfferWait = absl::Seconds(10);
constexpr size_t kChunkBytes = size_t{1} << 20;

// Streams packed copies. Deletes itself.
class FetchReactor final : public grpc::ServerWriteReactor<v1::FetchCopiesResponse> {
 public:
  explicit FetchReactor(const absl::Status& refused) { Finish(ToGrpcStatus(refused)); }
  FetchReactor(RoundBuffer buffer, std::vector<v1::Copy> copies)
      : buffer_(std::move(buffer)), packer_(std::in_place, buffer_.memory->data(), std::move(copies)) {
    Send();
  }
  void OnWriteDone(bool ok) override {
    if (ok) {
      Send();
    } else {
      Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the consumer went away"));
    }
  }
  void OnDone() override { delete this; }

 private:
  void Send() {
    chunk_.set_data(packer_->Next(kChunkBytes));
    if (chunk_.data().empty()) {
      Finish(grpc::Status::OK);
    } else {
      StartWrite(&chunk_);
    }
  }

  // Kept until the stream has ended, whatever becomes of the load.
  RoundBuffer buffer_;
  std::optional<CopyPacker> packer_;
  v1::FetchCopiesResponse chunk_;
};

}  // namespace

TransferService::Key TransferService::Key::OfLoad(const std::string& plan_digest, const std::string& token) {
  uint64_t number = 0;
  const std::string digest = Digest(token);
  std::memcpy(&number, digest.data(), std::min(sizeof(number), digest.size()));
  return {plan_digest, number | 1};
}

void TransferService::Add(const Key& key, std::string token, std::shared_ptr<ByteServer> lender,
                          std::shared_ptr<WindowOffers> offers) {
  MutexLock lock(mutex_);
  served_[key] = {std::move(token), std::move(lender), std::move(offers)};
}

void TransferService::Remove(const Key& key) {
  std::shared_ptr<ByteServer> last;  // not destroyed under the lock
  MutexLock lock(mutex_);
  const auto served = served_.find(key);
  if (served == served_.end()) return;
  last = std::move(served->second.lender);
  served_.erase(served);
}

absl::StatusOr<TransferService::Served> TransferService::ServedFor(const v1::TransferIdentity& transfer) {
  if (transfer.job() != options_.job || transfer.source_rank() != options_.rank ||
      transfer.source_incarnation() != options_.incarnation) {
    return MakeError(Reason::kStaleIncarnation,
                     absl::StrCat("this is rank ", options_.rank, " of ", options_.job,
                                  ", not the agent that the plan was made for"),
                     {{"rank", absl::StrCat(options_.rank)}});
  }
  MutexLock lock(mutex_);
  const auto served =
      served_.find({transfer.plan_digest(), transfer.load_number(), transfer.step(), transfer.attempt()});
  const std::string what = transfer.load_number() != 0
                               ? "the load"
                               : absl::StrCat("step ", transfer.step(), " attempt ", transfer.attempt());
  // An unknown transfer has no token to check. Its callers learn only that it is unknown.
  if (served == served_.end()) {
    return MakeError(Reason::kPlanUnknown, absl::StrCat("rank ", options_.rank, ": ", what, " is not known here"),
                     {{"rank", absl::StrCat(options_.rank)}});
  }
  if (!TokenMatches(served->second.token, transfer.token())) {
    return MakeError(Reason::kBadToken, absl::StrCat("rank ", options_.rank, ": the token is not that of ", what));
  }
  return served->second;
}

grpc::ServerUnaryReactor* TransferService::AwaitRound(grpc::CallbackServerContext* context,
                                                      const v1::AwaitRoundRequest* request,
                                                      v1::AwaitRoundResponse* response) {
  const auto served = ServedFor(request->transfer());
  if (!served.ok()) return FinishNow(context, served.status());
  const std::shared_ptr<ByteServer> source = served->lender;
  const uint32_t consumer = request->transfer().consumer_rank();
  const absl::Duration max_wait = std::clamp(DurationOf(request->max_wait()), absl::ZeroDuration(), kLongestWait);
  if (max_wait <= absl::ZeroDuration()) {
    // The call only releases.
    source->Release(consumer, request->released_below());
    return FinishNow(context, absl::OkStatus());
  }
  auto awaited = std::make_shared<std::atomic<uint64_t>>(0);
  const auto call = HeldCall::Start(max_wait, [source, awaited](HeldCall& held, bool timer) {
    source->Forget(*awaited);
    if (timer) held.Answer(absl::OkStatus());  // not ready
  });
  grpc::ServerUnaryReactor* reactor = call->reactor();
  *awaited = source->Await(consumer, request->round(), request->released_below(),
                           [call, response](absl::StatusOr<RoundBuffer> buffer) {
                             if (!call->Claim()) return;
                             if (buffer.ok()) {
                               response->set_ready(true);
                               response->set_descriptor_id(buffer->descriptor_id);
                               response->set_bytes(buffer->bytes);
                               for (const LentShard& shard : buffer->shards) {
                                 v1::StagedShard& staged = *response->add_staged_shards();
                                 staged.set_shard(shard.shard);
                                 staged.set_offset(shard.offset);
                                 staged.set_bytes(shard.bytes);
                               }
                             }
                             call->AnswerClaimed(buffer.status());
                           });
  if (call->finished()) source->Forget(*awaited);
  return reactor;
}

grpc::ServerWriteReactor<v1::FetchCopiesResponse>* TransferService::FetchCopies(grpc::CallbackServerContext*,
                                                                                const v1::FetchCopiesRequest* request) {
  const auto served = ServedFor(request->transfer());
  if (!served.ok()) return new FetchReactor(served.status());
  const std::shared_ptr<ByteServer> source = served->lender;
  // A round that has been awaited stands there, so this is answered at once.
  auto buffer = std::make_shared<absl::StatusOr<RoundBuffer>>(
      MakeError(Reason::kBadRequest, absl::StrCat("round ", request->round(), " is fetched before it was awaited")));
  const uint64_t call = source->Await(request->transfer().consumer_rank(), request->round(), 0,
                                      [buffer](absl::StatusOr<RoundBuffer> now) { *buffer = std::move(now); });
  if (call != 0) {
    source->Forget(call);
    return new FetchReactor(
        MakeError(Reason::kBadRequest, absl::StrCat("round ", request->round(), " is fetched before it was awaited")));
  }
  if (!buffer->ok()) return new FetchReactor(buffer->status());
  if ((*buffer)->memory == nullptr) return new FetchReactor(MakeError(Reason::kBadRequest, "no bytes stand here"));
  for (const v1::Copy& copy : request->copies()) {
    if (const absl::Status bad = CheckSource(copy, (*buffer)->bytes); !bad.ok()) return new FetchReactor(bad);
  }
  return new FetchReactor(**buffer, {request->copies().begin(), request->copies().end()});
}

grpc::ServerUnaryReactor* TransferService::OfferWindows(grpc::CallbackServerContext* context,
                                                        const v1::OfferWindowsRequest* request,
                                                        v1::OfferWindowsResponse* response) {
  const auto served = ServedFor(request->transfer());
  if (!served.ok()) return FinishNow(context, served.status());
  if (served->offers == nullptr) {
    return FinishNow(context, MakeError(Reason::kBadRequest, "no exchange over NCCL is expected here"));
  }
  const std::shared_ptr<WindowOffers> offers = served->offers;
  const absl::Status taken = offers->Take(*request);
  if (!taken.ok() || !request->last()) return FinishNow(context, taken);
  auto awaited = std::make_shared<std::atomic<uint64_t>>(0);
  const auto call = HeldCall::Start(kOfferWait, [offers, awaited, response](HeldCall& held, bool timer) {
    offers->Forget(*awaited);
    if (!timer || !held.Claim()) return;
    const std::vector<uint32_t> missing = offers->missing();
    response->mutable_missing_ranks()->Assign(missing.begin(), missing.end());
    held.AnswerClaimed(absl::OkStatus());
  });
  grpc::ServerUnaryReactor* reactor = call->reactor();
  *awaited = offers->AwaitBroadcast(
      request->transfer().consumer_rank(), [call, response](const absl::StatusOr<std::vector<uint32_t>>& broadcast) {
        if (!call->Claim()) return;
        if (broadcast.ok()) {
          response->set_decided(true);
          response->mutable_broadcast_windows()->Assign(broadcast->begin(), broadcast->end());
        }
        call->AnswerClaimed(broadcast.status());
      });
  if (call->finished()) offers->Forget(*awaited);
  return reactor;
}

}  // namespace cairn
