#include "agent/reader/round_source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {

RoundSource::RoundSource(Storage& storage, BufferPool& pool, std::string job, ReadPlanPtr plan,
                         RoundSourceOptions options)
    : pool_(pool),
      plan_(std::move(plan)),
      options_(std::move(options)),
      reader_(storage, std::move(job), *plan_, options_.reader),
      ledger_(*plan_) {}

absl::Status RoundSource::Start() {
  CAIRN_ASSIGN_OR_RETURN(thread_, StartThread("to read a load", [this] { Run(); }));
  return absl::OkStatus();
}

RoundSource::~RoundSource() { Stop(MakeError(Reason::kInterrupted, "the load has ended")); }

void RoundSource::Stop(const absl::Status& why) {
  MutexLock stopping(stop_mutex_);
  stop_ = true;
  {
    MutexLock lock(mutex_);
    if (error_.ok()) error_ = why;
    changed_.NotifyAll();
  }
  AnswerWaiting();
  if (thread_.joinable()) thread_.join();
  MutexLock lock(mutex_);
  for (RoundBuffer& buffer : buffers_) {
    if (buffer.memory == nullptr) continue;
    options_.offers.withdraw(buffer.descriptor_id);
    pool_.GiveBack(std::move(buffer.memory));
    buffer = RoundBuffer();
  }
}

void RoundSource::Run() {
  const absl::Status status = WithMemory("to read a load", [this] { return ReadAll(); });
  if (!status.ok()) {
    bool first = false;
    {
      MutexLock lock(mutex_);
      first = error_.ok();
      if (first) error_ = status;
    }
    AnswerWaiting();
    if (first) options_.on_error(status);
  }
  options_.on_progress();
}

absl::Status RoundSource::ReadAll() {
  CAIRN_RETURN_IF_ERROR(reader_.CheckPlan());
  uint64_t sizes[2] = {0, 0};
  for (int r = 0; r < plan_->rounds_size(); ++r) sizes[r % 2] = std::max(sizes[r % 2], plan_->rounds(r).buffer_bytes());
  while (true) {
    uint32_t round = 0;
    {
      MutexLock lock(mutex_);
      while (error_.ok() && !ledger_.NextToRead() && !ledger_.all_read()) changed_.Wait(mutex_);
      if (!error_.ok()) return error_;
      if (ledger_.all_read()) return absl::OkStatus();
      round = *ledger_.NextToRead();
    }
    const size_t which = round % 2;
    RoundBuffer buffer;
    {
      MutexLock lock(mutex_);
      buffer = buffers_[which];
    }
    if (buffer.memory == nullptr) {
      CAIRN_ASSIGN_OR_RETURN(buffer.memory, pool_.Take(sizes[which]));
      CAIRN_ASSIGN_OR_RETURN(buffer.descriptor_id, options_.offers.offer(buffer.memory));
      buffer.bytes = buffer.memory->bytes();
      MutexLock lock(mutex_);
      buffers_[which] = buffer;
    }
    CAIRN_RETURN_IF_ERROR(reader_.ReadRound(round, buffer.memory->data(), stop_));
    {
      MutexLock lock(mutex_);
      ledger_.MarkReady(round);
    }
    AnswerWaiting();
    options_.on_progress();
  }
}

std::optional<absl::StatusOr<RoundBuffer>> RoundSource::AnswerFor(uint32_t consumer, uint32_t round) {
  if (!error_.ok()) return error_;
  if (absl::Status bad = ledger_.CheckConsumer(consumer, round); !bad.ok()) return bad;
  switch (ledger_.StandingOf(round)) {
    case RoundLedger::Standing::kNotYet:
      return std::nullopt;
    case RoundLedger::Standing::kReady:
      return buffers_[round % 2];
    case RoundLedger::Standing::kGone:
      return MakeError(Reason::kBadRequest, absl::StrCat("rank ", consumer, " has released round ", round, " already"));
  }
  return std::nullopt;
}

void RoundSource::AnswerWaiting() {
  std::vector<std::pair<Done, absl::StatusOr<RoundBuffer>>> answers;
  {
    MutexLock lock(mutex_);
    for (auto call = waiting_.begin(); call != waiting_.end();) {
      auto answer = AnswerFor(call->second.consumer, call->second.round);
      if (!answer) {
        ++call;
        continue;
      }
      answers.emplace_back(std::move(call->second.done), *std::move(answer));
      call = waiting_.erase(call);
    }
  }
  for (auto& [done, answer] : answers) done(std::move(answer));
}

uint64_t RoundSource::Await(uint32_t consumer, uint32_t round, uint32_t released_below, Done done) {
  std::optional<absl::StatusOr<RoundBuffer>> answer;
  {
    MutexLock lock(mutex_);
    ledger_.Release(consumer, released_below);
    changed_.NotifyAll();
    answer = AnswerFor(consumer, round);
    if (!answer) {
      const uint64_t call = next_call_++;
      waiting_.emplace(call, Waiting{consumer, round, std::move(done)});
      return call;
    }
  }
  done(*std::move(answer));
  return 0;
}

void RoundSource::Forget(uint64_t call) {
  MutexLock lock(mutex_);
  waiting_.erase(call);
}

void RoundSource::Release(uint32_t consumer, uint32_t released_below) {
  MutexLock lock(mutex_);
  ledger_.Release(consumer, released_below);
  changed_.NotifyAll();
}

ByteServer::Progress RoundSource::progress() {
  MutexLock lock(mutex_);
  return {reader_.bytes_done(), reader_.counters().storage(), reader_.counters().io_path(), ledger_.all_read()};
}

}  // namespace cairn
