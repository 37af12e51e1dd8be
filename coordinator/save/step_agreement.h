// Lets the ranks agree on the step of a save that was asked for from outside, while every trainer runs at its own pace.
//
// The step is armed in every trainer's control page, which refuses if the trainer has reported it already. Only when
// all have armed it are they told to answer save_requested(): two rounds, so that no trainer saves at a step that
// another one has passed. One refusal disarms all, and a later step is tried, with a margin that doubles.
#ifndef CAIRN_COORDINATOR_SAVE_STEP_AGREEMENT_H_
#define CAIRN_COORDINATOR_SAVE_STEP_AGREEMENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "coordinator/decision/job_context.h"
#include "coordinator/decision/rank_error.h"
#include "coordinator/membership/counted_ranks.h"
#include "coordinator/membership/news.h"

namespace cairn {

// A function of the members' reported states and `context.now`. Not thread-safe.
class StepAgreement {
 public:
  enum class State { kIdle, kArming, kAgreeing, kAgreed, kDisarming };

  State state() const { return state_; }
  // The step under way. There is none when kIdle.
  int64_t step() const { return step_; }

  // Asks for an agreement on `step`, or on one that the ranks can still reach. Does nothing while one is under way, or
  // while ranks or their steps are missing.
  // FAILED_PRECONDITION (STEP_PASSED): `step` was given and a rank has passed it.
  absl::Status Want(std::optional<int64_t> step, const JobContext& context);
  // Gives up: armed ranks are disarmed. If the ranks have agreed already, nothing is taken back; the agreement is only
  // forgotten.
  void Stop(const JobContext& context);
  // Takes an agreement back that no request needs any more. A trainer that has reached the step already begins its save
  // all the same.
  void Revoke(const JobContext& context);
  // Takes the step that the ranks' answers have made possible.
  void Advance(const JobContext& context);
  // Takes what a member has reported.
  News Report(const Member& member, const JobContext& context);
  // The rank's agent is lost.
  void OnLost(int rank) {
    answers_.Change(static_cast<size_t>(rank), [](Answer& answer) { answer = Answer(); });
  }
  // Returns whether all members have acted on the step, or will not act on it any more.
  bool over(const Membership& members) const { return answers_.count(Answer::kOver) >= members.size(); }
  // Takes up what an earlier coordinator had begun, unless all ranks have acted on it or gone past it. The caller does
  // this when all ranks have reported for the first time.
  void Recover(const JobContext& context);

  // Returns whether no rank reaches the step within some seconds, at its present pace.
  bool IsFar(const JobContext& context) const;
  // Returns what the ranks should do; nothing if there is nothing under way.
  std::optional<v1::ArmOrder> Order() const;
  // Changes whenever that does.
  std::tuple<State, uint64_t, int64_t> told() const { return {state_, number_, step_}; }

  // Returns why there is no agreement yet, rank by rank; empty when every rank has answered.
  std::vector<NamedRank> Awaited(const JobContext& context) const;
  // Returns when something last moved.
  absl::Time progress() const { return progress_; }
  // True if an earlier coordinator began it, so that nobody here asked for it.
  bool inherited() const { return number_ != 0 && number_ >> 32 != (own_epoch_ & 0xffffffff); }

 private:
  // Says what a rank last answered to order `number_`.
  struct Answer {
    enum Mark { kArmed, kAgreed, kRefused, kOver, kMarks };
    uint32_t marks() const {
      return uint32_t{status == v1::ArmState::ARMED} << kArmed | uint32_t{status == v1::ArmState::AGREED} << kAgreed |
             uint32_t{status == v1::ArmState::REFUSED} << kRefused | uint32_t{over} << kOver;
    }

    v1::ArmState::Status status = v1::ArmState::STATUS_UNSPECIFIED;
    bool over = false;
  };

  void Set(State state, const JobContext& context);
  // Returns whether the rank will not act on the step any more, or has acted on it.
  bool IsOver(const Member& member) const;
  bool AllArmed(const Membership& members) const;
  bool AllAgreed(const Membership& members) const;

  State state_ = State::kIdle;
  uint64_t number_ = 0;
  uint64_t own_epoch_ = 0;
  uint32_t counter_ = 0;
  int64_t step_ = 0;
  int refusals_ = 0;  // steps refused since the last agreement
  CountedRanks<Answer> answers_;
  absl::Time progress_ = absl::InfinitePast();
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SAVE_STEP_AGREEMENT_H_
