#include "agent/transport/nccl/step_pipe.h"

#include <utility>

#include "common/resources/thread.h"
#include "common/status/status.h"

namespace cairn {

absl::Status StepPipe::Start() {
  CAIRN_ASSIGN_OR_RETURN(thread_, StartThread("for the steps of an exchange over NCCL", [this] { Run(); }));
  return absl::OkStatus();
}

absl::Status StepPipe::AwaitFewerThan(size_t steps) {
  MutexLock lock(mutex_);
  while (posted_.size() >= steps && error_.ok()) changed_.Wait(mutex_);
  return error_;
}

absl::Status StepPipe::AwaitRoom() { return AwaitFewerThan(kPlaces); }

absl::Status StepPipe::Drain() { return AwaitFewerThan(1); }

absl::Status StepPipe::AwaitPlace(size_t place) {
  MutexLock lock(mutex_);
  while (holders_[place] > 0 && error_.ok()) changed_.Wait(mutex_);
  return error_;
}

absl::Status StepPipe::Post(const ExchangeStep& step, worker::Step request, size_t place, size_t holders,
                            std::function<void()> done) {
  request.set_number(++group_->steps);
  if (const absl::Status begun = group_->worker->BeginStep(request); !begun.ok()) return explain_(begun, step);
  MutexLock lock(mutex_);
  posted_.push_back({&step, request.number(), place, holders, std::move(done)});
  changed_.NotifyAll();
  return error_;
}

void StepPipe::Release(size_t place) {
  MutexLock lock(mutex_);
  --holders_[place];
  changed_.NotifyAll();
}

void StepPipe::Cancel(const absl::Status& why) {
  MutexLock lock(mutex_);
  if (error_.ok()) error_ = why;
  changed_.NotifyAll();
}

void StepPipe::Run() {
  while (true) {
    Posted first;
    {
      MutexLock lock(mutex_);
      while (posted_.empty() && !ending_) changed_.Wait(mutex_);
      if (posted_.empty()) return;
      first = posted_.front();
    }
    absl::Status ended = group_->worker->AwaitStep(first.number, stall_timeout_);
    if (ended.ok()) {
      {
        MutexLock lock(mutex_);
        holders_[first.place] = first.holders;
      }
      first.done();
    } else {
      ended = explain_(ended, *first.step);
    }
    MutexLock lock(mutex_);
    posted_.pop_front();
    if (error_.ok()) error_ = ended;
    changed_.NotifyAll();
    if (!ended.ok()) return;
  }
}

void StepPipe::End() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace cairn
