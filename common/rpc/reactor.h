// Unary calls that are answered later. A held call is finished exactly once: by its answer, by its timer, by the
// caller's cancellation or by the server's drain, whichever comes first. (gRPC's Server::Shutdown waits for every
// reactor, so one that is forgotten hangs the process.)
#ifndef CAIRN_COMMON_RPC_REACTOR_H_
#define CAIRN_COMMON_RPC_REACTOR_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/rpc/call_timer.h"
#include "common/rpc/grpc_status.h"

namespace cairn {

// Answers a call at once.
inline grpc::ServerUnaryReactor* FinishNow(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

// A call that waits for something. Thread-safe.
//
// gRPC's reactor and everybody who may answer hold a shared pointer to the object. Anybody may call Answer; only the
// first call counts. Never call Answer while holding a lock that `on_end` takes.
class HeldCall final : public Timed, public std::enable_shared_from_this<HeldCall> {
 public:
  // Starts a held call; the handler must return `reactor()`. If the call ends by the timer or by a cancellation,
  // `on_end` runs once, and the owner must forget the call. `timer` is true for the timer: then `on_end` must call
  // Answer. It is false for a cancellation.
  static std::shared_ptr<HeldCall> Start(absl::Duration max_wait, std::function<void(HeldCall&, bool timer)> on_end) {
    auto call = std::shared_ptr<HeldCall>(new HeldCall(std::move(on_end)));
    call->reactor_ = new Reactor(call);
    CallTimer::OfProcess().Set(max_wait, call, call->time_over_);
    return call;
  }

  grpc::ServerUnaryReactor* reactor() { return reactor_; }

  // Finishes the call with `status` and the current contents of its response. Returns false if it had ended.
  bool Answer(const absl::Status& status) {
    if (finished_.exchange(true)) return false;
    CallTimer::OfProcess().Cancel(time_over_);
    reactor_->Finish(ToGrpcStatus(status));
    return true;
  }
  // Claims the response for writing: if this returns true, the caller alone may fill it, and must then call
  // AnswerClaimed.
  bool Claim() { return !finished_.exchange(true); }
  void AnswerClaimed(const absl::Status& status) {
    CallTimer::OfProcess().Cancel(time_over_);
    reactor_->Finish(ToGrpcStatus(status));
  }
  bool finished() const { return finished_.load(); }

  void OnTimeOver() override { End(true); }

 private:
  class Reactor final : public grpc::ServerUnaryReactor {
   public:
    explicit Reactor(std::shared_ptr<HeldCall> call) : call_(std::move(call)) {}
    void OnCancel() override {
      call_->End(false);
      call_->Answer(absl::CancelledError("cancelled by the caller"));
    }
    void OnDone() override { delete this; }

   private:
    const std::shared_ptr<HeldCall> call_;
  };

  explicit HeldCall(std::function<void(HeldCall&, bool)> on_end) : on_end_(std::move(on_end)) {}

  void End(bool timer) {
    if (!finished() && !ended_.exchange(true)) on_end_(*this, timer);
  }

  const std::function<void(HeldCall&, bool)> on_end_;
  Reactor* reactor_ = nullptr;
  CallTimer::Entry time_over_;
  std::atomic<bool> finished_ = false;
  std::atomic<bool> ended_ = false;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_REACTOR_H_
