#include "gpu/copy/overlap_state.h"

#include <utility>

#include "gpu/driver/deadline.h"

namespace cairn {
bool OverlapState::AwaitBegun(double seconds, DeviceOutcome* outcome) {
  const Deadline deadline(seconds);
  MutexLock lock(mutex_);
  while (!begun_ && !deadline.passed()) changed_.WaitFor(mutex_, deadline.left());
  if (begun_) *outcome = beginning_;
  return begun_;
}

bool OverlapState::Guard(Streams streams, double seconds) {
  const Deadline deadline(seconds);
  MutexLock lock(mutex_);
  if (copied_) return true;
  guards_.push_back(std::move(streams));
  const int64_t ticket = ++asked_;
  changed_.NotifyAll();
  while (served_ < ticket && !copied_ && !deadline.passed()) changed_.WaitFor(mutex_, deadline.left());
  if (served_ >= ticket || copied_) return true;
  missed_ = true;
  return false;
}

bool OverlapState::AwaitEnd(double seconds, DeviceOutcome* outcome) {
  const Deadline deadline(seconds);
  MutexLock lock(mutex_);
  while (!ended_ && !deadline.passed()) changed_.WaitFor(mutex_, deadline.left());
  if (ended_) *outcome = outcome_;
  return ended_;
}

void OverlapState::Begun(const DeviceOutcome& outcome) {
  MutexLock lock(mutex_);
  begun_ = true;
  beginning_ = outcome;
  changed_.NotifyAll();
}

std::vector<OverlapState::Streams> OverlapState::Guards() {
  MutexLock lock(mutex_);
  return guards_;
}

void OverlapState::Served(size_t count) {
  MutexLock lock(mutex_);
  guards_.erase(guards_.begin(), guards_.begin() + static_cast<std::ptrdiff_t>(count));
  served_ += static_cast<int64_t>(count);
  changed_.NotifyAll();
}

void OverlapState::AwaitGuard(double seconds) {
  MutexLock lock(mutex_);
  if (guards_.empty()) changed_.WaitFor(mutex_, absl::Seconds(seconds));
}

void OverlapState::Copied() {
  MutexLock lock(mutex_);
  copied_ = true;
  changed_.NotifyAll();
}

void OverlapState::End(DeviceOutcome outcome) {
  MutexLock lock(mutex_);
  if (missed_ && outcome.kind == DeviceOutcome::kDone) {
    outcome.kind = DeviceOutcome::kUnguarded;
    outcome.text = "an update of the state went on before the GPU's driver could be told to keep it waiting";
  }
  if (!begun_) beginning_ = outcome;
  outcome_ = std::move(outcome);
  begun_ = copied_ = ended_ = true;
  changed_.NotifyAll();
}

}  // namespace cairn
