#include "agent/transport/round_pace.h"

#include "common/status/reason.h"

namespace cairn {

RoundPace::~RoundPace() {
  Cancel();
  if (far_ != nullptr) far_->Stop();
}

absl::Status RoundPace::Await(uint32_t round) {
  const auto done = [answers = answers_](const auto& opened) {
    if (opened.ok()) {
      answers->Put(Open());
    } else {
      answers->Put(opened.status());
    }
  };
  if (far_ != nullptr) {
    far_->Await(round, round, done);
    return answers_->Take().status();
  }
  const uint64_t call = own_->Await(rank_, round, round, done);
  const absl::Status ended = answers_->Take().status();
  own_->Forget(call);
  return ended;
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
