#include "agent/transport/nccl/round_gate.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/status/reason.h"

namespace cairn {

RoundGate::RoundGate(const std::vector<uint32_t>& ranks) {
  for (const uint32_t rank : ranks) ready_below_.emplace(rank, 0);
}

std::string RoundGate::TokenOf(const std::string& load_token) {
  return absl::BytesToHexString(Digester().Add(load_token).Add("the gate of its rounds").Finish());
}

uint64_t RoundGate::OpenBelow() const {
  uint64_t below = UINT64_MAX;
  for (const auto& [rank, ready] : ready_below_) below = std::min(below, ready);
  return below;
}

uint64_t RoundGate::Await(uint32_t rank, uint32_t round, uint32_t released_below, Done done) {
  uint64_t call = 0;
  absl::Status refused;
  {
    MutexLock lock(mutex_);
    const auto ready = ready_below_.find(rank);
    if (!error_.ok()) {
      refused = error_;
    } else if (ready == ready_below_.end()) {
      refused = MakeError(Reason::kBadRequest, absl::StrCat("rank ", rank, " takes no part in the exchange"));
    } else {
      ready->second = std::max({ready->second, uint64_t{round} + 1, uint64_t{released_below}});
      // The last one answers all; the others wait.
      if (OpenBelow() <= round) {
        call = next_call_++;
        waiting_.emplace(call, Waiting{round, std::move(done)});
      }
    }
  }
  if (!refused.ok()) {
    done(refused);
  } else if (call == 0) {
    done(RoundBuffer());
  }
  AnswerWaiting();
  return call;
}

void RoundGate::Forget(uint64_t call) {
  MutexLock lock(mutex_);
  waiting_.erase(call);
}

void RoundGate::Release(uint32_t rank, uint32_t below) {
  {
    MutexLock lock(mutex_);
    const auto ready = ready_below_.find(rank);
    if (ready == ready_below_.end()) return;
    ready->second = std::max(ready->second, uint64_t{below});
  }
  AnswerWaiting();
}

void RoundGate::Stop(const absl::Status& why) {
  {
    MutexLock lock(mutex_);
    if (error_.ok()) error_ = why;
  }
  AnswerWaiting();
}

void RoundGate::AnswerWaiting() {
  std::vector<Done> answers;
  absl::Status error;
  {
    MutexLock lock(mutex_);
    error = error_;
    const uint64_t open_below = OpenBelow();
    for (auto call = waiting_.begin(); call != waiting_.end();) {
      if (error.ok() && call->second.round >= open_below) {
        ++call;
        continue;
      }
      answers.push_back(std::move(call->second.done));
      call = waiting_.erase(call);
    }
  }
  for (Done& done : answers) {
    if (error.ok()) {
      done(RoundBuffer());
    } else {
      done(error);
    }
  }
}

}  // namespace cairn
