// Shows which driver call another thread is executing.
#ifndef CAIRN_GPU_DRIVER_CALL_WATCH_H_
#define CAIRN_GPU_DRIVER_CALL_WATCH_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace cairn::cuda {

// Only one thread at a time may be watched. Any thread may call Hanging.
class CallWatch {
 public:
  // While it exists, the watch sees the calls that this thread makes through WatchedFunction.
  class Here {
   public:
    explicit Here(CallWatch& watch) : before_(current_) { current_ = &watch; }
    ~Here() { current_ = before_; }
    Here(const Here&) = delete;
    Here& operator=(const Here&) = delete;

   private:
    CallWatch* const before_;
  };

  class Call {
   public:
    explicit Call(const char* symbol) : watch_(current_) {
      if (watch_ == nullptr) return;
      watch_->since_.store(Now(), std::memory_order_relaxed);
      watch_->symbol_.store(symbol, std::memory_order_release);
    }
    ~Call() {
      if (watch_ != nullptr) watch_->symbol_.store(nullptr, std::memory_order_release);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    CallWatch* const watch_;
  };

  // Returns for example "cuEventSynchronize has not returned for 1.5 s"; "" if the thread is in no call, or has just
  // begun it.
  std::string Hanging() const;

 private:
  static int64_t Now() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

  static inline thread_local CallWatch* current_ = nullptr;
  std::atomic<const char*> symbol_{nullptr};
  std::atomic<int64_t> since_{0};
};

// A function of the driver. It is used like a function pointer, but a CallWatch sees its calls.
template <typename Signature>
class WatchedFunction;

template <typename Result, typename... Parameters>
class WatchedFunction<Result(Parameters...)> {
 public:
  using Pointer = Result (*)(Parameters...);

  void Set(void* function, const char* symbol) {
    function_ = reinterpret_cast<Pointer>(function);
    symbol_ = symbol;
  }
  Result operator()(Parameters... parameters) const {
    const CallWatch::Call call(symbol_);
    return function_(parameters...);
  }
  explicit operator bool() const { return function_ != nullptr; }

 private:
  Pointer function_ = nullptr;
  const char* symbol_ = "";
};

}  // namespace cairn::cuda

#endif  // CAIRN_GPU_DRIVER_CALL_WATCH_H_
