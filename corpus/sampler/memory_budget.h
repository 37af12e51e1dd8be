// Keeps what several threads allocate at the same time within one number of bytes.
#ifndef CAIRN_CORPUS_SAMPLER_MEMORY_BUDGET_H_
#define CAIRN_CORPUS_SAMPLER_MEMORY_BUDGET_H_

#include <cstdint>
#include <utility>

#include "common/base/mutex.h"

namespace cairn::corpus {

// Thread-safe. It must outlive its shares.
class MemoryBudget {
 public:
  // Gives its bytes back when it is destroyed.
  class Share {
   public:
    Share(Share&& other) noexcept : budget_(std::exchange(other.budget_, nullptr)), bytes_(other.bytes_) {}
    Share& operator=(Share&&) = delete;
    ~Share() {
      if (budget_ != nullptr) budget_->GiveBack(bytes_);
    }

   private:
    friend class MemoryBudget;
    Share(MemoryBudget* budget, uint64_t bytes) : budget_(budget), bytes_(bytes) {}

    MemoryBudget* budget_;
    const uint64_t bytes_;
  };

  explicit MemoryBudget(uint64_t bytes) : free_(bytes) {}

  // Waits until so much is free, which must be at most the whole budget. A thread that has a share must not take
  // another one: two such threads could wait for each other.
  Share Take(uint64_t bytes) {
    MutexLock lock(mutex_);
    while (free_ < bytes) changed_.Wait(mutex_);
    free_ -= bytes;
    return Share(this, bytes);
  }

 private:
  void GiveBack(uint64_t bytes) {
    MutexLock lock(mutex_);
    free_ += bytes;
    changed_.NotifyAll();
  }

  Mutex mutex_;
  CondVar changed_;
  uint64_t free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SAMPLER_MEMORY_BUDGET_H_
