#include "coordinator/job/testing/simulated_agent.h"

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

// A trainer waits for the others' agreement for so many of its turns.
constexpr int kArmWaits = 20;

}  // namespace

void SimulatedAgent::Restart(uint64_t new_incarnation, uint64_t new_trainer) {
  SimulatedAgent fresh;
  fresh.rank = rank;
  fresh.step = step;
  fresh.incarnation = new_incarnation;
  fresh.predecessor = incarnation;
  fresh.trainer = new_trainer;
  *this = fresh;
}

std::string SimulatedAgent::Layout() const { return absl::StrCat("layout", rank); }

v1::AgentIdentity SimulatedAgent::Identity(const std::string& job) const {
  v1::AgentIdentity identity;
  identity.set_job(job);
  identity.set_rank(static_cast<uint32_t>(rank));
  identity.set_incarnation(incarnation);
  identity.set_coordinator_epoch(epoch);
  return identity;
}

v1::SynchronizeAgentRequest SimulatedAgent::Report(const std::string& job) {
  v1::SynchronizeAgentRequest request;
  *request.mutable_agent() = Identity(job);
  request.set_sequence(++sequence);
  v1::AgentState& state = *request.mutable_state();
  state.mutable_trainer()->set_attached(true);
  state.mutable_trainer()->set_incarnation(trainer);
  state.mutable_trainer()->set_current_step(step);
  state.mutable_trainer()->set_layout_digest(Layout());
  *state.mutable_arm() = arm;
  for (const auto& [at, call] : calls) *state.add_saves() = call.state;
  return request;
}

bool SimulatedAgent::Obey(const v1::ArmOrder& order) {
  if (order.action() == v1::ArmOrder::ARM && order.number() > arm.number()) {
    arm.set_number(order.number());
    arm.set_step(order.step());
    arm.set_status(step >= order.step() ? v1::ArmState::REFUSED : v1::ArmState::ARMED);
    armed_step = arm.status() == v1::ArmState::ARMED ? order.step() : -1;
    agreed = false;
  } else if (order.action() == v1::ArmOrder::AGREE && order.number() == arm.number() &&
             arm.status() == v1::ArmState::ARMED) {
    agreed = agreed || step <= order.step();
    arm.set_status(step <= order.step() ? v1::ArmState::AGREED : v1::ArmState::REFUSED);
    return step <= order.step();
  } else if (order.action() == v1::ArmOrder::DISARM && order.number() >= arm.number()) {
    arm.set_number(order.number());
    arm.set_status(v1::ArmState::DISARMED);
    armed_step = -1;
    agreed = false;
  }
  return false;
}

bool SimulatedAgent::TryStep() {
  if (armed_step == step + 1 && !agreed) {
    if (++arm_waits < kArmWaits) return false;
    arm.set_status(v1::ArmState::REFUSED);
    armed_step = -1;
  }
  arm_waits = 0;
  ++step;
  return true;
}

void SimulatedAgent::BeginSave(int64_t at, bool overwrite, absl::Time now) {
  Call& call = calls[at];
  call.begun = now;
  call.state.set_step(at);
  call.state.set_phase(v1::Phase::PLANNING);
  call.state.set_call(++last_call[at]);
  call.state.set_trainer_incarnation(trainer);
  call.state.set_layout_digest(Layout());
  call.state.set_overwrite(overwrite);
}

}  // namespace cairn
