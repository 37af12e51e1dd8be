#include "agent/transport/testing/slow_rounds.h"

#include <cstring>

#include "absl/status/statusor.h"

namespace cairn::testing {

SlowRounds::SlowRounds(const v1::ReadPlan& plan, std::string file, uint64_t round_bytes, BufferPool& pool)
    : plan_(plan), file_(std::move(file)), round_bytes_(round_bytes), ledger_(plan_) {
  for (RoundBuffer& buffer : buffers_) {
    buffer.memory = *pool.Take(round_bytes);
    buffer.bytes = round_bytes;
  }
}

bool SlowRounds::Read() {
  uint32_t round = 0;
  {
    MutexLock lock(mutex_);
    const auto next = ledger_.NextToRead();
    if (!next.has_value()) return false;
    round = *next;
  }
  std::memcpy(buffers_[round % 2].memory->data(), file_.data() + round * round_bytes_, round_bytes_);
  {
    MutexLock lock(mutex_);
    ledger_.MarkReady(round);
  }
  AnswerWaiting();
  return true;
}

bool SlowRounds::all_read() {
  MutexLock lock(mutex_);
  return ledger_.all_read();
}

bool SlowRounds::all_released() {
  MutexLock lock(mutex_);
  for (uint32_t round = 0; round < ledger_.rounds(); ++round) {
    if (ledger_.StandingOf(round) != RoundLedger::Standing::kGone) return false;
  }
  return true;
}

uint64_t SlowRounds::Await(uint32_t consumer, uint32_t round, uint32_t released_below, Done done) {
  {
    MutexLock lock(mutex_);
    ledger_.Release(consumer, released_below);
    waiting_.emplace_back(round, std::move(done));
  }
  AnswerWaiting();
  return 0;
}

void SlowRounds::Release(uint32_t consumer, uint32_t below) {
  MutexLock lock(mutex_);
  ledger_.Release(consumer, below);
}

void SlowRounds::Stop(const absl::Status& why) {
  {
    MutexLock lock(mutex_);
    error_ = why;
  }
  AnswerWaiting();
}

void SlowRounds::AnswerWaiting() {
  std::vector<std::pair<Done, absl::StatusOr<RoundBuffer>>> answers;
  {
    MutexLock lock(mutex_);
    std::erase_if(waiting_, [&](auto& waiting) {
      if (error_.ok() && ledger_.StandingOf(waiting.first) == RoundLedger::Standing::kNotYet) return false;
      if (error_.ok()) {
        answers.emplace_back(std::move(waiting.second), buffers_[waiting.first % 2]);
      } else {
        answers.emplace_back(std::move(waiting.second), error_);
      }
      return true;
    });
  }
  for (auto& [done, answer] : answers) done(std::move(answer));
}

}  // namespace cairn::testing
