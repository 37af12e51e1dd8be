#include "store/s3/s3_pace.h"

#include <algorithm>

namespace cairn {
namespace {

constexpr absl::Duration kFirstBackOff = absl::Milliseconds(100);
constexpr absl::Duration kLongestBackOff = absl::Seconds(10);

}  // namespace

S3Verdict JudgeS3Answer(int status, std::string_view code) {
  if (status == 503 || status == 429 || code == "SlowDown" || code == "Throttling") return S3Verdict::kSlowDown;
  // 409: two writes met, and neither has to have won.
  // 501: the store will not know the request the next time either.
  if (status == 0 || status == 408 || status == 409 || (status >= 500 && status != 501)) return S3Verdict::kAgain;
  // Tokens are renewed before they expire, by this machine's clock; if it is slow, soon after.
  for (const std::string_view passing :
       {"RequestTimeout", "ExpiredToken", "InternalError", "BadDigest", "XAmzContentChecksumMismatch", "CrcMismatch"}) {
    if (code == passing) return S3Verdict::kAgain;
  }
  return S3Verdict::kFinal;
}

absl::Duration S3BackOff(int attempt, double random) {
  const int doublings = std::clamp(attempt - 1, 0, 10);
  return random * std::min(kLongestBackOff, kFirstBackOff * (1 << doublings));
}

void S3Window::Succeeded() { limit_ = std::min(most_, limit_ + 0.25 / limit_); }

void S3Window::ToldToSlowDown(absl::Time now) {
  if (now - halved_ < absl::Seconds(1)) return;
  halved_ = now;
  limit_ = std::max(1.0, limit_ / 2);
}

}  // namespace cairn
