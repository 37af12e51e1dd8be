#include "corpus/bpe/step_team.h"

#include <utility>

#include "absl/status/statusor.h"
#include "common/resources/thread.h"

namespace cairn::corpus {
namespace {

// A helper looks this often for work before it sleeps. That is longer than the pause between two steps in a row, and
// much shorter than what a person would notice as a busy processor.
constexpr int kLooks = 4000;
constexpr int kLooksBeforeYield = 1000;

inline void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // `yield` takes no time on most of these processors
#endif
}

}  // namespace

StepTeam::StepTeam(uint32_t parts) : parts_(parts), claim_(parts) {
  for (uint32_t i = 1; i < parts; ++i) {
    absl::StatusOr<std::thread> helper = StartThread("to merge", [this] { Help(); });
    if (!helper.ok()) break;  // those that run claim its parts
    helpers_.push_back(*std::move(helper));
  }
}

StepTeam::~StepTeam() {
  ended_.store(true);
  claim_.store(First(claim_.load()) | parts_);
  claim_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

bool StepTeam::WorkOn() {
  bool worked = false;
  uint64_t claim = claim_.load(std::memory_order_acquire);
  while (PartOf(claim) < parts_) {
    if (!claim_.compare_exchange_weak(claim, claim + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    // The step cannot end before this part is done, so `work_` is that step's work.
    (*work_)(PartOf(claim));
    done_.fetch_add(1, std::memory_order_release);
    worked = true;
    claim = claim_.load(std::memory_order_acquire);
  }
  return worked;
}

void StepTeam::Run(absl::FunctionRef<void(uint32_t)> work) {
  work_ = &work;
  done_.store(0, std::memory_order_relaxed);
  claim_.store(First(claim_.load(std::memory_order_relaxed)), std::memory_order_release);
  if (parts_ > 1) claim_.notify_all();
  WorkOn();
  for (int looks = 0; done_.load(std::memory_order_acquire) != parts_; ++looks) {
    if (looks < kLooksBeforeYield) {
      Relax();
    } else {
      std::this_thread::yield();
    }
  }
}

void StepTeam::Help() {
  int looks = 0;
  while (!ended_.load(std::memory_order_relaxed)) {
    if (WorkOn()) looks = 0;
    if (++looks < kLooks) {
      Relax();
      continue;
    }
    const uint64_t claim = claim_.load(std::memory_order_acquire);
    if (PartOf(claim) >= parts_ && !ended_.load()) claim_.wait(claim);
    looks = 0;
  }
}

}  // namespace cairn::corpus
