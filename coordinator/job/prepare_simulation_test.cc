// Runs programs that call `prepare` on all ranks of a job, one rank after the other in a random order, and looks at
// what each call gets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/testing/job_fixture.h"

namespace cairn {
namespace {

// A rank's trainer with its agent. It prepares one layout after the other.
struct Rank {
  std::vector<std::string> layouts;
  size_t at = 0;
  uint64_t calls = 0;
  bool waits = false;
  std::map<size_t, std::string> refused;  // what it was told, by the place of the call in `layouts`
};

class PrepareSimulationTest : public JobFixture, public testing::WithParamInterface<int> {
 protected:
  PrepareSimulationTest() : random_(static_cast<uint64_t>(GetParam())) {
    const int ranks = Choose(1, 4);
    StartJob(Options(), ranks);
    for (int rank = 0; rank < ranks; ++rank) Register(rank);
    Recover();
    program_.resize(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) Say(rank, "");
  }

  int Choose(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }

  // Appends a round to the programs of all ranks. A layout of "any" fits to all others.
  void AddRound(const std::string& letter, const std::set<int>& unchanged) {
    for (int rank = 0; rank < ranks_; ++rank) {
      program_[static_cast<size_t>(rank)].layouts.push_back(
          absl::StrCat(unchanged.contains(rank) ? "any" : letter, " of ", rank));
    }
  }

  void Say(int rank, const std::string& layout) {
    v1::AgentState state = StateWith(Trainer(rank));
    state.mutable_trainer()->set_layout_digest(layout);
    state.mutable_trainer()->set_prepare_calls(program_[static_cast<size_t>(rank)].calls);
    if (!layout.empty()) core_->layouts.Add(layout, 1);
    Synchronize(rank, state);
  }

  // The rank begins its next call, or looks at what its call has got.
  void Step(int rank) {
    Rank& program = program_[static_cast<size_t>(rank)];
    if (program.at == program.layouts.size()) return;
    const std::string& layout = program.layouts[program.at];
    if (!program.waits) {
      ++program.calls;
      program.waits = true;
      Say(rank, layout);
    }
    const v1::SynchronizeAgentResponse orders = job().OrdersFor(rank, At());
    const auto plan = plans_.find(orders.current_plan_digest());
    const bool refused = orders.has_current_plan_error();
    if (!refused && (plan == plans_.end() || plan->second[static_cast<size_t>(rank)] != layout)) return;
    if (refused) program.refused[program.at] = std::string(StatusFromProto(orders.current_plan_error()).message());
    ++program.at;
    program.waits = false;
  }

  void AnswerPlanner() {
    const auto asked = Take<PlanSave>();
    if (!asked.has_value()) return;
    std::set<std::string> letters;
    for (const std::string& layout : asked->layout) letters.insert(layout.substr(0, layout.find(' ')));
    letters.erase("any");
    const std::string digest = absl::StrJoin(asked->layout, ", ");
    if (letters.size() > 1) {
      job().OnSavePlanned(asked->key, MakeError(Reason::kDtypeMismatch, digest), At());
    } else {
      plans_[digest] = asked->layout;
      job().OnSavePlanned(asked->key, PlannedSave{digest, 1}, At());
    }
  }

  // Runs all programs, in any order.
  void Run() {
    const auto ended = [&](const Rank& program) { return program.at == program.layouts.size(); };
    for (int step = 0; step < 5000; ++step) {
      if (std::all_of(program_.begin(), program_.end(), ended)) return;
      switch (Choose(0, 3)) {
        case 0:
          AnswerPlanner();
          break;
        case 1:
          Pass(absl::Milliseconds(100));
          // Between two ticks the plan may be one for which more layouts are waited.
          ASSERT_EQ(core_->Missed(), "");
          break;
        default:
          Step(Choose(0, ranks_ - 1));
      }
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      const Rank& program = program_[static_cast<size_t>(rank)];
      EXPECT_TRUE(ended(program)) << "rank " << rank << " waits in call " << program.at << " of "
                                  << program.layouts.size()
                                  << ", awaited: " << job().View(At()).layout_awaited_ranks_size();
    }
  }

  std::mt19937_64 random_;
  std::vector<Rank> program_;
  std::map<std::string, std::vector<std::string>> plans_;  // the layouts by rank, by digest
};

// Layouts change from round to round, or stay. Some ranks have what fits to all.
TEST_P(PrepareSimulationTest, Prepare_LayoutsOfEachRoundFit_NoCallIsRefused) {
  std::set<int> unchanged;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (Choose(0, 3) == 0) unchanged.insert(rank);
  }
  std::string letter = "a";
  for (int round = Choose(1, 8); round > 0; --round) {
    if (Choose(0, 1) == 0) letter = std::string(1, static_cast<char>('a' + Choose(0, 3)));
    AddRound(letter, unchanged);
  }
  Run();
  for (int rank = 0; rank < ranks_; ++rank) {
    for (const auto& [call, error] : program_[static_cast<size_t>(rank)].refused) {
      ADD_FAILURE() << "rank " << rank << ", call " << call << ": " << error;
    }
  }
}

// In one round a rank has a layout that does not fit. It hears of it, tries again with what fits, and all go on. So do
// the others, unless they hear so late that all fits again.
TEST_P(PrepareSimulationTest, Prepare_LayoutsOfARoundContradict_CallsOfThatRoundAreRefused) {
  AddRound("a", {});
  AddRound("b", {});
  Rank& odd = program_[static_cast<size_t>(Choose(0, ranks_ - 1))];
  odd.layouts[1] = "odd";
  AddRound("b", {});
  AddRound("c", {});
  Run();
  EXPECT_EQ(odd.refused.size(), ranks_ > 1 ? 1u : 0u);
  for (const Rank& program : program_) {
    for (const auto& [call, error] : program.refused) EXPECT_EQ(call, 1u) << error;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, PrepareSimulationTest, testing::Range(0, 200));

}  // namespace
}  // namespace cairn
