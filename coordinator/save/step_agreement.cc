#include "coordinator/save/step_agreement.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/duration_text.h"
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

void StepAgreement::Set(State state, JobContext& context) {
  if (state_ == state) return;
  state_ = state;
  progress_ = context.now;
  context.orders_changed = true;
  Recount(context);
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

void StepAgreement::Recount(const JobContext& context) {
  answers_.clear();
  armed_ = agreed_ = over_ = 0;
  for (const auto& [rank, member] : context.members.members()) Report(member, context);
}

bool StepAgreement::Report(const Member& member, const JobContext& context) {
  if (state_ == State::kIdle) return false;
  const Answer answer = {AnswerOf(member, number_), IsOver(member)};
  if (!Note(member.rank, answer)) return false;
  const auto world_size = static_cast<size_t>(context.members.world_size());
  const bool tries = state_ == State::kArming || state_ == State::kAgreeing;
  return (tries && answer.status == v1::ArmState::REFUSED) || over_ >= context.members.size() ||
         (state_ == State::kAgreeing && agreed_ >= world_size) ||
         (state_ == State::kArming && armed_ + agreed_ >= world_size);
}

bool StepAgreement::IsConsistent(const Membership& members) const {
  if (state_ == State::kIdle) return true;
  size_t armed = 0, agreed = 0, over = 0;
  for (const auto& [rank, member] : members.members()) {
    const v1::ArmState::Status answer = AnswerOf(member, number_);
    armed += answer == v1::ArmState::ARMED ? 1 : 0;
    agreed += answer == v1::ArmState::AGREED ? 1 : 0;
    over += IsOver(member) ? 1 : 0;
  }
  return armed == armed_ && agreed == agreed_ && over == over_;
}

bool StepAgreement::Note(int rank, const Answer& answer) {
  const auto at = static_cast<size_t>(rank);
  if (answers_[at].status == answer.status && answers_[at].over == answer.over) return false;
  Answer& before = answers_.At(at);
  const auto count = [](size_t& counter, bool was, bool is) {
    counter += is ? 1 : 0;
    counter -= was ? 1 : 0;
  };
  count(armed_, before.status == v1::ArmState::ARMED, answer.status == v1::ArmState::ARMED);
  count(agreed_, before.status == v1::ArmState::AGREED, answer.status == v1::ArmState::AGREED);
  count(over_, before.over, answer.over);
  before = answer;
  return true;
}

absl::Status StepAgreement::Want(std::optional<int64_t> step, JobContext& context) {
  if (state_ != State::kIdle || !context.members.complete()) return absl::OkStatus();
  double farthest = -1;
  double fastest = 0;
  std::vector<NamedRank> passed;
  for (const auto& [rank, member] : context.members.members()) {
    const std::optional<int64_t> at = member.current_step();
    if (!at.has_value()) return absl::OkStatus();
    if (step.has_value() && *at >= *step) {
      passed.push_back({rank, v1::RankProgress::ARMING, absl::StrCat("last reported step ", *at)});
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

void StepAgreement::Stop(JobContext& context) {
  if (state_ == State::kArming) {
    Set(State::kDisarming, context);
  } else if (state_ == State::kAgreeing || state_ == State::kAgreed) {
    Set(State::kIdle, context);
    refusals_ = 0;
  }
}

void StepAgreement::Revoke(JobContext& context) {
  if (state_ != State::kIdle) Set(State::kDisarming, context);
}

void StepAgreement::Advance(JobContext& context) {
  if (state_ == State::kIdle || state_ == State::kAgreed) return;
  bool all_armed = context.members.complete();
  bool all_agreed = all_armed;
  bool all_over = true;
  bool refused = false;
  for (const auto& [rank, member] : context.members.members()) {
    // If the trainer has passed the step, save_requested() can no longer answer it.
    const bool passed = member.current_step().value_or(-1) >= step_;
    switch (AnswerOf(member, number_)) {
      case v1::ArmState::ARMED:
        all_agreed = false;
        all_over = all_over && passed;
        break;
      case v1::ArmState::AGREED:
        all_over = all_over && passed;
        break;
      case v1::ArmState::REFUSED:
        refused = true;
        all_armed = all_agreed = false;
        break;
      case v1::ArmState::DISARMED:
        all_armed = all_agreed = false;
        break;
      // An agent that has said nothing may have armed it all the same.
      default:
        all_armed = all_agreed = all_over = false;
        break;
    }
  }
  switch (state_) {
    case State::kArming:
      if (refused) {
        ++refusals_;
        Set(State::kDisarming, context);
      } else if (all_armed) {
        Set(State::kAgreeing, context);
      }
      break;
    case State::kAgreeing:
      if (refused) {
        // A trainer gave up waiting between the two rounds. Ranks that saw the agreement begin a save that the others
        // will not join; it ends by naming those.
        ++refusals_;
        Set(State::kDisarming, context);
      } else if (all_agreed) {
        refusals_ = 0;
        Set(State::kAgreed, context);
      }
      break;
    case State::kDisarming:
      if (all_over || context.now - progress_ >= context.options.phase_timeout) Set(State::kIdle, context);
      break;
    default:
      break;
  }
}

void StepAgreement::Recover(JobContext& context) {
  if (state_ != State::kIdle) return;
  uint64_t number = 0;
  int64_t step = 0;
  bool agreed = false;
  for (const auto& [rank, member] : context.members.members()) {
    const v1::ArmState& arm = member.state.arm();
    const bool open = arm.status() == v1::ArmState::ARMED || arm.status() == v1::ArmState::AGREED;
    if (!open || arm.number() < number) continue;
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

std::optional<v1::ArmOrder> StepAgreement::OrderFor(int) const {
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
  for (int rank : context.members.Absent())
    named_ranks.push_back({rank, v1::RankProgress::ARMING, "no agent registered"});
  for (const auto& [rank, member] : context.members.members()) {
    const std::string heard = absl::StrCat("agent last heard ", DurationText(context.now - member.heard), " ago");
    if (!member.current_step().has_value()) {
      const std::string halt = HaltOf(member, context);
      named_ranks.push_back({rank, v1::RankProgress::ARMING,
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
            {rank, v1::RankProgress::ARMING, absl::StrCat("has not answered for step ", step_, ", ", heard)});
    }
  }
  return named_ranks;
}

}  // namespace cairn
