#include "agent/transport/nccl/round_pace.h"

#include "absl/strings/str_cat.h"
#include "common/base/duration_text.h"
#include "common/status/reason.h"

namespace cairn {

RoundPace::~RoundPace() {
  Cancel();
  if (far_ != nullptr) far_->Stop();
}

absl::Status RoundPace::Await(uint32_t round, absl::Duration timeout) {
  const auto done = [answers = answers_](const auto& opened) {
    if (opened.ok()) {
      answers->Put(Open());
    } else {
      answers->Put(opened.status());
    }
  };
  uint64_t call = 0;
  if (far_ != nullptr) {
    far_->Await(round, round, done);
  } else {
    call = own_->Await(rank_, round, round, done);
  }
  const auto ended = answers_->Take(timeout);
  if (own_ != nullptr) own_->Forget(call);
  if (ended.has_value()) return ended->status();
  return MakeError(Reason::kTimedOut, absl::StrCat("not all ranks have come within ", DurationText(timeout)));
}

void RoundPace::Pass(uint32_t below) {
  if (own_ != nullptr) return own_->Release(rank_, below);
  far_->Release(below, [answers = answers_](const absl::Status& error) { answers->Put(error); });
}

void RoundPace::Cancel() {
  answers_->Put(MakeError(Reason::kInterrupted, "the exchange has ended"));
  if (far_ != nullptr) far_->Cancel();
}

}  // namespace cairn
