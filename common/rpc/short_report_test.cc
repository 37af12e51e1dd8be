#include "common/rpc/short_report.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>

namespace cairn {
namespace {

const std::string kLayout(32, 'l');
const std::string kPlan(32, 'p');

v1::AgentState Idle() {
  v1::AgentState state;
  state.mutable_trainer()->set_attached(true);
  state.mutable_trainer()->set_incarnation(7);
  state.mutable_trainer()->set_layout_digest(kLayout);
  state.mutable_arm();
  state.set_memory_budget(uint64_t{1} << 36);
  state.set_round_bytes(uint64_t{1} << 28);
  return state;
}

v1::SaveState Staging(int64_t step) {
  v1::SaveState save;
  save.set_step(step);
  save.set_phase(v1::Phase::STAGING);
  save.set_layout_digest(kLayout);
  save.set_plan_digest(kPlan);
  save.set_bytes_total(1000);
  save.set_call(1);
  save.set_trainer_incarnation(7);
  return save;
}

// The agent, and what the coordinator has taken last.
class Link {
 public:
  Link() { shortener_.Begin(true); }

  v1::SynchronizeAgentRequest Make(const v1::AgentState& state) {
    v1::SynchronizeAgentRequest request;
    request.set_sequence(++sequence_);
    *request.mutable_state() = state;
    shortener_.Shorten(request);
    return request;
  }
  // As the coordinator takes a request. False: it refuses the request.
  bool Take(const v1::SynchronizeAgentRequest& request) {
    if (request.sequence() <= taken_) return true;
    if (request.base_sequence() == 0) {
      held_ = request.state();
    } else if (taken_ < request.base_sequence()) {
      return false;
    } else {
      held_ = WholeState(held_, request.state());
    }
    taken_ = request.sequence();
    return true;
  }
  // One whole call. Returns the bytes of the state in it.
  size_t Call(const v1::AgentState& state) {
    const v1::SynchronizeAgentRequest request = Make(state);
    EXPECT_TRUE(Take(request));
    shortener_.OnAnswered(request.sequence());
    EXPECT_EQ(held_.SerializeAsString(), state.SerializeAsString());
    return request.state().ByteSizeLong();
  }

  ReportShortener shortener_;
  v1::AgentState held_;
  uint64_t sequence_ = 0;
  uint64_t taken_ = 0;
};

TEST(ReportShortenerTest, Shorten_NothingHasChanged_SendsNothing) {
  Link link;
  EXPECT_GT(link.Call(Idle()), 50u);
  EXPECT_EQ(link.Call(Idle()), 0u);
}

TEST(ReportShortenerTest, Shorten_NotAllowedOrNotAnswered_IsWhole) {
  Link link;
  link.shortener_.Begin(false);
  link.Call(Idle());
  EXPECT_EQ(link.Make(Idle()).base_sequence(), 0u);
  link.shortener_.Begin(true);
  EXPECT_EQ(link.Make(Idle()).base_sequence(), 0u) << "nothing was answered since it registered";
  EXPECT_EQ(link.Make(Idle()).base_sequence(), 0u);
}

TEST(ReportShortenerTest, Shorten_TheTrainersStepMoves_SendsTheStep) {
  Link link;
  v1::AgentState state = Idle();
  link.Call(state);
  state.mutable_trainer()->set_current_step(100);
  EXPECT_EQ(link.Call(state), 4u);
}

TEST(ReportShortenerTest, Shorten_ASave_NamesItsLayoutAndTrainerOnce) {
  Link link;
  v1::AgentState state = Idle();
  link.Call(state);
  *state.add_saves() = Staging(100);
  EXPECT_LT(link.Call(state), kPlan.size() + 20);
  state.mutable_saves(0)->set_phase(v1::Phase::STAGED);
  EXPECT_EQ(link.Call(state), 8u) << "a step, a call, a phase, and a length";
  state.clear_saves();
  EXPECT_EQ(link.Call(state), 0u);
}

TEST(ReportShortenerTest, Shorten_AFieldIsUnset_IsWhole) {
  Link link;
  v1::AgentState state = Idle();
  link.Call(state);
  state.mutable_trainer()->set_attached(false);
  EXPECT_GT(link.Call(state), 50u);
  EXPECT_EQ(link.Call(state), 0u);
}

// The call with the second state may have arrived although it failed. The third state equals the first. If its fields
// were omitted because they equal the first state's, the coordinator would keep the second state.
TEST(ReportShortenerTest, Shorten_ACallWasGivenUp_HoldsForEitherState) {
  for (const bool came : {false, true}) {
    Link link;
    v1::AgentState first = Idle();
    *first.add_saves() = Staging(100);
    link.Call(first);
    v1::AgentState second = first;
    second.mutable_saves(0)->set_phase(v1::Phase::STAGED);
    const v1::SynchronizeAgentRequest given_up = link.Make(second);
    if (came) link.Take(given_up);
    link.Call(first);
    EXPECT_EQ(link.held_.saves(0).phase(), v1::Phase::STAGING);
  }
}

TEST(ReportShortenerTest, Shorten_NoAnswerForLong_IsWholeAgain) {
  Link link;
  link.Call(Idle());
  for (int i = 0; i < 20; ++i) link.Make(Idle());
  link.taken_ = 0;  // it has lost everything
  EXPECT_TRUE(link.Take(link.Make(Idle())));
}

TEST(ReportShortenerTest, Take_ACoordinatorThatLostTheBase_Refuses) {
  Link link;
  link.Call(Idle());
  const v1::SynchronizeAgentRequest request = link.Make(Idle());
  link.taken_ = 0;
  EXPECT_FALSE(link.Take(request));
}

TEST(WholeStateTest, UnknownFields_DoNotGrow) {
  v1::AgentState newer = Idle();
  newer.GetReflection()->MutableUnknownFields(&newer)->AddVarint(1000, 1);
  v1::AgentState held;
  for (int i = 0; i < 3; ++i) held = WholeState(held, newer);
  EXPECT_EQ(held.SerializeAsString(), Idle().SerializeAsString());
}

// Random states over a network that loses, delays and repeats requests and answers.
TEST(WholeStateTest, AnyListOfASave_ComesAgain_IsReplaced) {
  v1::AgentState state = Idle();
  v1::SaveState& save = *state.add_saves() = Staging(1);
  const auto* reflection = save.GetReflection();
  int lists = 0;
  for (int i = 0; i < save.GetDescriptor()->field_count(); ++i) {
    const auto* field = save.GetDescriptor()->field(i);
    if (!field->is_repeated()) continue;
    ++lists;
    if (field->message_type() != nullptr) {
      reflection->AddMessage(&save, field);
    } else {
      reflection->AddUInt32(&save, field, 1);
    }
  }
  EXPECT_GE(lists, 3);
  EXPECT_EQ(WholeState(state, state).SerializeAsString(), state.SerializeAsString());
}

TEST(ReportShortenerTest, RandomStatesAndLosses_TheCoordinatorHoldsWhatWasSentLast) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    std::minstd_rand random(seed);
    const auto chance = [&](int one_of) { return random() % static_cast<uint32_t>(one_of) == 0; };
    Link link;
    v1::AgentState state = Idle();
    std::optional<v1::SynchronizeAgentRequest> late;
    for (int i = 0; i < 200; ++i) {
      if (chance(3)) state.mutable_trainer()->set_current_step(static_cast<int64_t>(random() % 4));
      if (chance(20)) state.mutable_trainer()->set_attached(!state.trainer().attached());
      if (chance(10))
        state.mutable_trainer()->set_layout_digest(std::string(32, static_cast<char>('a' + random() % 3)));
      if (chance(10)) state.mutable_arm()->set_number(random() % 3);
      if (chance(10)) state.mutable_arm()->set_status(static_cast<v1::ArmState::Status>(random() % 5));
      if (chance(10) && state.saves_size() < 3) *state.add_saves() = Staging(static_cast<int64_t>(random() % 3));
      if (chance(10) && state.saves_size() > 0) state.mutable_saves()->DeleteSubrange(0, 1);
      for (v1::SaveState& save : *state.mutable_saves()) {
        if (chance(4)) save.set_phase(static_cast<v1::Phase::Value>(random() % 9));
        if (chance(4)) save.set_attempt(static_cast<uint32_t>(random() % 3));
        if (chance(8)) save.set_plan_digest(std::string(random() % 2 * 32, 'q'));
        if (chance(8)) save.set_call(random() % 3);
        if (chance(8)) save.add_awaited_ranks(static_cast<uint32_t>(random() % 9));
        if (chance(8)) save.clear_awaited_ranks();
        if (chance(8)) save.add_replica_checksums()->set_crc32c(static_cast<uint32_t>(random()));
        if (chance(8)) save.mutable_result()->add_files()->add_item_checksums(static_cast<uint32_t>(random()));
        if (chance(16)) save.clear_result();
        if (chance(16)) save.add_metrics()->set_value(static_cast<double>(random() % 3));
        if (chance(16)) save.mutable_error()->set_message("e");
        if (chance(16)) save.mutable_resumed_from()->set_step(static_cast<int64_t>(random() % 3));
      }
      if (chance(10)) state.clear_loads();
      if (chance(10)) state.add_loads()->set_number(random() % 3);
      const v1::SynchronizeAgentRequest request = link.Make(state);
      if (late.has_value() && chance(3)) link.Take(*late);
      if (chance(4)) {
        late = request;  // it comes later, or never
        continue;
      }
      ASSERT_TRUE(link.Take(request)) << "seed " << seed << " event " << i;
      ASSERT_EQ(link.held_.SerializeAsString(), state.SerializeAsString()) << "seed " << seed << " event " << i;
      if (!chance(4)) link.shortener_.OnAnswered(request.sequence());
    }
  }
}

}  // namespace
}  // namespace cairn
