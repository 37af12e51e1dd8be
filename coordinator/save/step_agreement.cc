#include "coordinator/save/step_agreement.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/duration_text.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

// More time than an order needs to reach every control page. The step is chosen so that no rank reaches it before.
constexpr double kMarginSeconds = 0.25;
// A rank's step is guessed at most this far beyond its last report.
constexpr double kMaxGuessSeconds = 5;
constexpr int kMaxDoublings = 16;
// A step that no rank reaches within this time leaves room for a save before it.
constexpr double kFarSeconds = 10;

std::string_view NameOf(StepAgreement::State state) {
  switch (state) {
    case StepAgreement::State::kIdle:
      return "idle";
    case StepAgreement::State::kArming:
      return "arming";
    case StepAgreement::State::kAgreeing:
      return "agreeing";
    case StepAgreement::State::kAgreed:
      return "agreed";
    case StepAgreement::State::kDisarming:
      return "disarming";
  }
  return "unknown";
}

// Returns what `member` answered to order `number`.
v1::ArmState::Status AnswerOf(const Member& member, uint64_t number) {
  const v1::ArmState& arm = member.state.arm();
  return member.reported && arm.number() == number ? arm.status() : v1::ArmState::STATUS_UNSPECIFIED;
}

// Returns whether the member's trainer has begun the save of an agreed step, or gone past the step.
bool HasActed(const Member& member, int64_t step) {
  return member.current_step().value_or(-1) > step ||
         std::any_of(member.state.saves().begin(), member.state.saves().end(),
                     [&](const v1::SaveState& save) { return save.step() == step; });
}

}  // namespace

void StepAgreement::Set(State state, const JobContext& context) {
  if (state_ == state) return;
  state_ = state;
  progress_ = context.now;
  // What was answered to another order, or means something else by now, is asked anew.
  answers_.clear();
  for (const auto& [rank, member] : context.members.members()) {
    (void)Report(member, context);  // whoever sets it looks at everything anyway
  }
  context.Log(LogLevel::kInfo, "agreement",
              {{"step", step_}, {"state", std::string(NameOf(state))}, {"number", number_}});
}

bool StepAgreement::IsOver(const Member& member) const {
  const int64_t at = member.current_step().value_or(-1);
  if (state_ == State::kDisarming) {
    const v1::ArmState::Status answer = AnswerOf(member, number_);
    // An agent that has said nothing may have armed it all the same. If the trainer has passed the step,
    // save_requested() can no longer answer it.
    return answer == v1::ArmState::REFUSED || answer == v1::ArmState::DISARMED ||
           (answer != v1::ArmState::STATUS_UNSPECIFIED && at >= step_);
  }
  return HasActed(member, step_);
}

bool StepAgreement::IsFar(const JobContext& context) const {
  double farthest = 0;
  for (const auto& [rank, member] : context.members.members()) {
    const std::optional<int64_t> at = member.current_step();
    if (!at.has_value()) return false;
    farthest = std::max(farthest, static_cast<double>(*at) + 1 + member.steps_per_second() * kFarSeconds);
  }
  return static_cast<double>(step_) > farthest;
}

News StepAgreement::Report(const Member& member, const JobContext& context) {
  if (state_ == State::kIdle) return {};
  const Answer now = {AnswerOf(member, number_), IsOver(member)};
  const Answer& before = answers_[static_cast<size_t>(member.rank)];
  if (before.status == now.status && before.over == now.over) return {};
  answers_.Change(static_cast<size_t>(member.rank), [&](Answer& answer) { answer = now; });
  const bool tries = state_ == State::kArming || state_ == State::kAgreeing;
  return News::Step((tries && now.status == v1::ArmState::REFUSED) || over(context.members) ||
                    (state_ == State::kAgreeing && AllAgreed(context.members)) ||
                    (state_ == State::kArming && AllArmed(context.members)));
}

bool StepAgreement::AllArmed(const Membership& members) const {
  return members.complete() && answers_.count(Answer::kArmed) + answers_.count(Answer::kAgreed) == members.size();
}

bool StepAgreement::AllAgreed(const Membership& members) const {
  return members.complete() && answers_.count(Answer::kAgreed) == members.size();
}

absl::Status StepAgreement::Want(std::optional<int64_t> step, const JobContext& context) {
  if (state_ != State::kIdle || !context.members.complete()) return absl::OkStatus();
  double farthest = -1;
  double fastest = 0;
  std::vector<NamedRank> passed;
  for (const auto& [rank, member] : context.members.members()) {
    const std::optional<int64_t> at = member.current_step();
    if (!at.has_value()) return absl::OkStatus();
    if (step.has_value() && *at >= *step) {
      passed.push_back({rank, v1::Phase::ARMING, absl::StrCat("last reported step ", *at)});
    }
    const double since = std::min(absl::ToDoubleSeconds(context.now - member.stepped), kMaxGuessSeconds);
    farthest = std::max(farthest, static_cast<double>(*at) + member.steps_per_second() * since);
    fastest = std::max(fastest, member.steps_per_second());
  }
  if (!passed.empty()) {
    return ErrorNaming(Reason::kStepPassed, context, {"save", step}, absl::StrCat("passed step ", *step),
                       std::move(passed));
  }
  const double doubled = std::ldexp(1.0, std::min(refusals_, kMaxDoublings));
  step_ = step.has_value()
              ? *step
              : static_cast<int64_t>(std::ceil(farthest + 1 + fastest * kMarginSeconds * doubled + (doubled - 1)));
  own_epoch_ = context.options.coordinator_epoch;
  number_ = (context.options.coordinator_epoch << 32) | ++counter_;
  Set(State::kArming, context);
  return absl::OkStatus();
}

void StepAgreement::Stop(const JobContext& context) {
  if (state_ == State::kArming) {
    Set(State::kDisarming, context);
  } else if (state_ == State::kAgreeing || state_ == State::kAgreed) {
    Set(State::kIdle, context);
    refusals_ = 0;
  }
}

void StepAgreement::Revoke(const JobContext& context) {
  if (state_ != State::kIdle) Set(State::kDisarming, context);
}

void StepAgreement::Advance(const JobContext& context) {
  const bool refused = answers_.count(Answer::kRefused) > 0;
  switch (state_) {
    case State::kArming:
      if (refused) {
        ++refusals_;
        Set(State::kDisarming, context);
      } else if (AllArmed(context.members)) {
        Set(State::kAgreeing, context);
      }
      break;
    case State::kAgreeing:
      if (refused) {
        // A trainer gave up waiting between the two rounds. Ranks that saw the agreement begin a save that the others
        // will not join; it ends by naming those.
        ++refusals_;
        Set(State::kDisarming, context);
      } else if (AllAgreed(context.members)) {
        refusals_ = 0;
        Set(State::kAgreed, context);
      }
      break;
    case State::kDisarming:
      if (over(context.members) || context.now - progress_ >= context.options.phase_timeout) Set(State::kIdle, context);
      break;
    case State::kIdle:
    case State::kAgreed:
      break;
  }
}

void StepAgreement::Recover(const JobContext& context) {
  if (state_ != State::kIdle) return;
  uint64_t number = 0;
  int64_t step = 0;
  bool agreed = false;
  for (const auto& [rank, member] : context.members.members()) {
    const v1::ArmState& arm = member.state.arm();
    const bool open = arm.status() == v1::ArmState::ARMED || arm.status() == v1::ArmState::AGREED;
    if (!open || arm.number() < number || !CheckStep(arm.step()).ok()) continue;
    if (arm.number() > number) agreed = false;
    number = arm.number();
    step = arm.step();
    agreed = agreed || arm.status() == v1::ArmState::AGREED;
  }
  if (number == 0) return;
  bool over = true;
  for (const auto& [rank, member] : context.members.members()) over = over && HasActed(member, step);
  if (agreed && over) return;
  own_epoch_ = context.options.coordinator_epoch;
  number_ = number;
  step_ = step;
  // If one rank was told to agree, all had armed; else nobody has acted on it.
  Set(agreed && step > 0 ? State::kAgreeing : State::kDisarming, context);
}

std::optional<v1::ArmOrder> StepAgreement::Order() const {
  v1::ArmOrder order;
  order.set_number(number_);
  order.set_step(step_);
  switch (state_) {
    case State::kIdle:
      return std::nullopt;
    case State::kArming:
      order.set_action(v1::ArmOrder::ARM);
      break;
    case State::kAgreeing:
    case State::kAgreed:
      order.set_action(v1::ArmOrder::AGREE);
      break;
    case State::kDisarming:
      order.set_action(v1::ArmOrder::DISARM);
      break;
  }
  return order;
}

std::vector<NamedRank> StepAgreement::Awaited(const JobContext& context) const {
  std::vector<NamedRank> named_ranks;
  for (int rank : context.members.Absent()) named_ranks.push_back({rank, v1::Phase::ARMING, "no agent registered"});
  for (const auto& [rank, member] : context.members.members()) {
    const std::string heard = absl::StrCat("agent last heard ", DurationText(context.now - member.heard), " ago");
    if (!member.current_step().has_value()) {
      const std::string halt = HaltOf(member, context);
      named_ranks.push_back({rank, v1::Phase::ARMING,
                             member.has_trainer()
                                 ? absl::StrCat("its trainer has reported no step", halt.empty() ? "" : ", ", halt)
                                 : "no trainer attached"});
    } else if (state_ != State::kIdle) {
      const auto answer = AnswerOf(member, number_);
      const bool done =
          (state_ == State::kArming && answer == v1::ArmState::ARMED) ||
          (state_ == State::kAgreeing && answer == v1::ArmState::AGREED) ||
          (state_ == State::kDisarming && (answer == v1::ArmState::DISARMED || answer == v1::ArmState::REFUSED)) ||
          state_ == State::kAgreed;
      if (!done)
        named_ranks.push_back(
            {rank, v1::Phase::ARMING, absl::StrCat("has not answered for step ", step_, ", ", heard)});
    }
  }
  return named_ranks;
}

}  // namespace cairn
