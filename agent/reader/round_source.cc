#include "agent/reader/round_source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/process/log.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// Lending ends after so many refusals in a row.
constexpr int kMostRefused = 2;

}  // namespace

RoundSource::RoundSource(Storage& storage, BufferPool& pool, std::string job, ReadPlanPtr plan,
                         RoundSourceOptions options)
    : pool_(pool),
      plan_(std::move(plan)),
      options_(std::move(options)),
      reader_(storage, std::move(job), *plan_, options_.reader),
      ledger_(*plan_),
      lends_(options_.lends_pieces) {}

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
  for (const auto& [file, id] : descriptors_) options_.offers.withdraw(id);
  descriptors_.clear();
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
  while (true) {
    std::optional<PiecesCheck> check;
    uint32_t round = 0;
    {
      MutexLock lock(mutex_);
      while (error_.ok() && checks_.empty() && !ledger_.NextToRead() && !done()) changed_.Wait(mutex_);
      if (!error_.ok()) return error_;
      if (!checks_.empty()) {
        check = std::move(checks_.front());
        checks_.pop_front();
      } else if (done()) {
        return absl::OkStatus();
      } else {
        round = *ledger_.NextToRead();
      }
    }
    if (check.has_value()) {
      CAIRN_RETURN_IF_ERROR(RunCheck(*std::move(check)));
      continue;
    }
    CAIRN_ASSIGN_OR_RETURN(const bool lent, Lend(round));
    if (!lent) CAIRN_RETURN_IF_ERROR(Read(round));
    {
      MutexLock lock(mutex_);
      ledger_.MarkReady(round);
    }
    AnswerWaiting();
    options_.on_progress();
  }
}

absl::Status RoundSource::Read(uint32_t round) {
  const size_t which = round % 2;
  RoundBuffer buffer;
  {
    MutexLock lock(mutex_);
    buffer = buffers_[which];
  }
  if (buffer.memory == nullptr) {
    uint64_t largest = 0;  // of the rounds that use this buffer
    for (int r = static_cast<int>(which); r < plan_->rounds_size(); r += 2) {
      largest = std::max(largest, plan_->rounds(r).buffer_bytes());
    }
    CAIRN_ASSIGN_OR_RETURN(buffer.memory, pool_.Take(largest));
    CAIRN_ASSIGN_OR_RETURN(buffer.descriptor_id, options_.offers.offer(buffer.memory));
    buffer.bytes = buffer.memory->bytes();
    MutexLock lock(mutex_);
    buffers_[which] = buffer;
  }
  return reader_.ReadRound(round, buffer.memory->data(), stop_);
}

absl::StatusOr<bool> RoundSource::Lend(uint32_t round) {
  if (!lends_) return false;
  CAIRN_ASSIGN_OR_RETURN(std::optional<LentPieces> pieces, reader_.Lend(round, stop_));
  if (!pieces.has_value()) return false;
  auto lent = std::make_shared<LentRound>();
  lent->pieces = pieces->pieces;
  for (const LentPieces::Source& source : pieces->sources) {
    const absl::StatusOr<uint64_t> id = IdOf(source);
    if (!id.ok()) {
      Log(LogLevel::kInfo, "round_not_lent", {{"round", round}, {"error", id.status()}});
      lends_ = false;
      return false;
    }
    lent->files.push_back({source.file, *id, source.begin, /*may_wait=*/!source.in_slab});
  }
  lent_pieces_.emplace(round, *std::move(pieces));
  MutexLock lock(mutex_);
  lent_[round] = std::move(lent);
  unchecked_.insert(round);
  return true;
}

absl::StatusOr<uint64_t> RoundSource::IdOf(const LentPieces::Source& source) {
  const std::pair<uint32_t, bool> key = {source.file, source.in_slab};
  {
    MutexLock lock(mutex_);
    if (const auto known = descriptors_.find(key); known != descriptors_.end()) return known->second;
  }
  CAIRN_ASSIGN_OR_RETURN(UniqueFd descriptor, reader_.Share(source));
  const uint64_t id = options_.offers.offer_descriptor(std::move(descriptor));
  MutexLock lock(mutex_);
  descriptors_.emplace(key, id);
  return id;
}

void RoundSource::DropDescriptors() {
  std::vector<uint64_t> dropped;
  MutexLock lock(mutex_);
  std::erase_if(descriptors_, [&](const auto& offered) {
    const bool used = std::any_of(lent_pieces_.begin(), lent_pieces_.end(), [&](const auto& lent) {
      return std::any_of(lent.second.sources.begin(), lent.second.sources.end(), [&](const LentPieces::Source& source) {
        return std::pair(source.file, source.in_slab) == offered.first;
      });
    });
    if (!used) dropped.push_back(offered.second);
    return !used;
  });
  for (const uint64_t id : dropped) options_.offers.withdraw(id);
}

absl::Status RoundSource::RunCheck(PiecesCheck check) {
  const auto pieces = lent_pieces_.extract(check.round);
  const PiecesRead& read = check.read;
  absl::Status verified = read.refusal.empty() ? reader_.VerifyPieces(check.round, pieces.mapped(), read.checksums)
                                               : MakeError(Reason::kInterrupted, read.refusal);
  const bool right = verified.ok();
  refused_ = right ? 0 : refused_ + 1;
  if (!right) {
    // What is wrong with the bytes is found and told when they are read again. One page that has left the cache is no
    // reason to lend no more.
    Log(LogLevel::kWarn, "lent_round_refused", {{"round", check.round}, {"error", verified}});
    if (refused_ >= kMostRefused || read.refusal.empty()) lends_ = false;
    verified = HasReason(verified, Reason::kBadRequest) ? verified : Read(check.round);
  }
  if (verified.ok()) {
    MutexLock lock(mutex_);
    unchecked_.erase(check.round);
    if (!right) lent_.erase(check.round);
  }
  DropDescriptors();
  if (verified.ok()) options_.on_progress();
  check.done(verified.ok() ? absl::StatusOr<bool>(right) : verified);
  return verified;
}

std::optional<absl::StatusOr<RoundBuffer>> RoundSource::AnswerFor(uint32_t consumer, uint32_t round) {
  if (!error_.ok()) return error_;
  if (absl::Status bad = ledger_.CheckConsumer(consumer, round); !bad.ok()) return bad;
  switch (ledger_.StandingOf(round)) {
    case RoundLedger::Standing::kNotYet:
      return std::nullopt;
    case RoundLedger::Standing::kReady:
      if (const auto lent = lent_.find(round); lent != lent_.end()) return RoundBuffer{.lent = lent->second};
      return buffers_[round % 2];
    case RoundLedger::Standing::kGone:
      return MakeError(Reason::kBadRequest, absl::StrCat("rank ", consumer, " has released round ", round, " already"));
  }
  return std::nullopt;
}

void RoundSource::AnswerWaiting() {
  std::vector<std::pair<Done, absl::StatusOr<RoundBuffer>>> answers;
  std::deque<PiecesCheck> unanswered;
  absl::Status error;
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
    if (!error_.ok()) unanswered.swap(checks_);
    error = error_;
  }
  for (auto& [done, answer] : answers) done(std::move(answer));
  for (PiecesCheck& check : unanswered) check.done(error);
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

void RoundSource::Check(uint32_t round, PiecesRead read, Checked done) {
  absl::Status refusal;
  {
    MutexLock lock(mutex_);
    refusal = error_;
    if (refusal.ok() && !unchecked_.contains(round)) {
      refusal = MakeError(Reason::kBadRequest, absl::StrCat("round ", round, " is not lent"));
    }
    if (refusal.ok()) {
      checks_.push_back({round, std::move(read), std::move(done)});
      changed_.NotifyAll();
      return;
    }
  }
  done(refusal);
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
  return {reader_.bytes_done(), reader_.counters().storage(), reader_.counters().io_path(), done()};
}

}  // namespace cairn
