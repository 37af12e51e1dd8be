#include "store/s3/s3_requester.h"

#include <algorithm>
#include <random>
#include <utility>

#include "common/base/random_id.h"
#include "common/status/reason.h"
#include "store/s3/http_status.h"
#include "store/s3/s3_object.h"

namespace cairn {
namespace {

constexpr absl::Duration kHurriedPatience = absl::Seconds(2);
// An object whose bytes do not have the checksum of the store is read so many times.
constexpr int kTriesOfMismatch = 3;
// A request that begins while the store has not answered for long is given up after this.
constexpr absl::Duration kPatienceInOutage = absl::Seconds(10);

double Random() {
  thread_local std::minstd_rand engine(static_cast<unsigned>(RandomId()));
  return std::uniform_real_distribution<double>(0, 1)(engine);
}

}  // namespace

void S3Requester::SetHurried(bool hurried) {
  MutexLock lock(mutex_);
  hurried_ = hurried;
  changed_.NotifyAll();
}

absl::Duration S3Requester::PatienceAt(absl::Time begun) {
  MutexLock lock(mutex_);
  if (last_answer_ == absl::InfinitePast()) return options_.first_patience;
  const bool outage = failing_since_ < begun - options_.patience;
  return outage ? std::min(options_.patience, kPatienceInOutage) : options_.patience;
}

void S3Requester::BackOffUnless(int attempt, const std::atomic<bool>* stop) {
  constexpr absl::Duration kLook = absl::Milliseconds(100);
  const absl::Time until = clock_.SteadyNow() + S3BackOff(attempt, Random());
  for (absl::Time now = clock_.SteadyNow(); now < until && !hurried_; now = clock_.SteadyNow()) {
    if (stop != nullptr && *stop) return;
    changed_.WaitFor(mutex_, stop == nullptr ? until - now : std::min(until - now, kLook));
  }
}

void S3Requester::BackOff(int attempt) {
  MutexLock lock(mutex_);
  BackOffUnless(attempt, nullptr);
}

void S3Requester::Enter() {
  MutexLock lock(mutex_);
  while (under_way_ >= window_.limit()) changed_.Wait(mutex_);
  ++under_way_;
}

void S3Requester::Leave(S3Verdict verdict, int status) {
  MutexLock lock(mutex_);
  --under_way_;
  if (verdict == S3Verdict::kSlowDown) window_.ToldToSlowDown(clock_.SteadyNow());
  if (verdict == S3Verdict::kFinal && status != 0 && !IsDenied(status)) {
    window_.Succeeded();
    last_answer_ = clock_.SteadyNow();
    failing_since_ = absl::InfiniteFuture();
  } else {
    failing_since_ = std::min(failing_since_, clock_.SteadyNow());
  }
  changed_.NotifyAll();
}

S3Reply S3Requester::Ask(const S3Request& request) {
  const absl::Time begun = clock_.SteadyNow();
  const absl::Duration patience = PatienceAt(begun);
  S3Reply reply;
  int without_credentials = 0, mismatched = 0;  // tries
  for (int attempt = 1;; ++attempt) {
    Enter();
    reply.Take(wire_->Send(request), request.content);
    S3Answer& answer = reply.answer;
    // What differs each time was not damaged on its way. The caller judges it by its own checksum.
    if (request.content && IsGood(answer.status) && !HasItsChecksum(*address_.dialect, answer) &&
        ++mismatched < kTriesOfMismatch) {
      answer.status = 0;
      answer.trouble = "what came does not have the checksum of the object";
    }
    S3Verdict verdict = answer.refused.ok() ? JudgeS3Answer(answer.status, reply.code) : S3Verdict::kFinal;
    if (answer.has_others) verdict = S3Verdict::kAgain;
    Leave(verdict, answer.status);
    reply.final = verdict == S3Verdict::kFinal;
    // An answer that was refused does not say what the store has done.
    reply.in_doubt |= answer.sent && (!reply.final || !answer.refused.ok());
    if (reply.final || (request.stop != nullptr && *request.stop)) return reply;
    without_credentials = answer.no_credentials ? without_credentials + 1 : 0;
    const absl::Time now = clock_.SteadyNow();
    MutexLock lock(mutex_);
    const bool answered = last_answer_ != absl::InfinitePast();
    // Nobody has ever answered there, or taken the credentials, so these are rather wrong than something is disturbed.
    const bool unreachable = answer.status == 0 && now - begun > options_.connect_patience && !reply.in_doubt;
    if (!answered && (without_credentials >= 3 || unreachable)) return reply;
    const absl::Duration most = hurried_ ? kHurriedPatience : patience;
    if (now - std::max(begun, last_answer_) > most || now - begun > 10 * most) return reply;
    BackOffUnless(attempt, request.stop);
  }
}

absl::StatusOr<S3Xml> S3Requester::AskForXml(const S3Request& request, std::string_view name) {
  S3Reply reply = Ask(request);
  if (!reply.done()) return ErrorOf(address_, request, reply);
  if (!reply.xml.has_value() || reply.xml->name != name) return Lacks(address_, request, name);
  return *std::move(reply.xml);
}

}  // namespace cairn
