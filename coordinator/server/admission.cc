#include "coordinator/server/admission.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/retry_delay.h"

namespace cairn {
namespace {

// The newest call counts for one part in so many of the mean.
constexpr int kMemory = 16;
// A plan that is made anew, or storage that hangs, says little about the calls that follow.
constexpr absl::Duration kLongestMean = absl::Seconds(1);

}  // namespace

Admission::Place::~Place() {
  MutexLock lock(admission_.mutex_);
  --admission_.calls_;
  admission_.bytes_ -= bytes_;
}

void Admission::Place::Took(absl::Duration time) {
  MutexLock lock(admission_.mutex_);
  admission_.mean_ += (std::min(time, kLongestMean) - admission_.mean_) / kMemory;
}

absl::StatusOr<std::shared_ptr<Admission::Place>> Admission::Enter(uint64_t bytes, absl::Time now) {
  MutexLock lock(mutex_);
  const absl::Duration each = mean_ / workers_;
  const absl::Duration line = each * static_cast<int64_t>(calls_);
  const bool fits = calls_ == 0 || (bytes_ <= kMaxBytes && bytes <= kMaxBytes - bytes_);
  if (line <= kPatience && fits) {
    ++calls_;
    bytes_ += bytes;
    return std::make_shared<Place>(*this, bytes);
  }
  ++refused_;
  const absl::Time turn = std::max(next_turn_, now + std::max(line, kShortestDelay));
  next_turn_ = std::min(turn + each, now + kLongestDelay);
  return WithRetryDelay(
      MakeError(Reason::kOverloaded, absl::StrCat("the coordinator has ", calls_, " uploads and downloads of ", bytes_,
                                                  " bytes to do first")),
      std::min(turn - now, kLongestDelay));
}

}  // namespace cairn
