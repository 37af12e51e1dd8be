// Decides what becomes of a request to an object store after an answer: whether it is sent again, when, and how many
// requests may be under way. Functions of answers and times.
#ifndef CAIRN_STORE_S3_S3_PACE_H_
#define CAIRN_STORE_S3_S3_PACE_H_

#include <string_view>

#include "absl/time/time.h"

namespace cairn {

enum class S3Verdict {
  kFinal,     // the answer counts, whether it is good or bad
  kAgain,     // the store, or the way to it, was disturbed
  kSlowDown,  // the store has too much to do
};

// Judges an answer: the HTTP status, or 0 if no whole answer came, and the code of its error, as "SlowDown".
S3Verdict JudgeS3Answer(int status, std::string_view code);

// Returns how long to wait before the try with this number, from 1: a random part of a time that doubles with each try
// from 100 ms to 10 s. `random` is evenly spread over [0, 1).
absl::Duration S3BackOff(int attempt, double random);

// The number of requests that may be under way. It is halved when the store asks to slow down, at most once in a
// second, because all that were under way are told the same; each success lets it grow a little. Not thread-safe.
class S3Window {
 public:
  explicit S3Window(int most) : most_(most), limit_(most) {}

  int limit() const { return static_cast<int>(limit_); }
  void Succeeded();
  void ToldToSlowDown(absl::Time now);

 private:
  const double most_;
  double limit_;
  absl::Time halved_ = absl::InfinitePast();
};

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_PACE_H_
