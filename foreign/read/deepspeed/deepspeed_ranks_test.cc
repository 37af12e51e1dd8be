#include "foreign/read/deepspeed/deepspeed_ranks.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// Parts of two ranks each, all of step 2 and stage 1.
std::vector<DeepSpeedPart> Parts(size_t count) {
  std::vector<DeepSpeedPart> parts(count);
  for (size_t i = 0; i < count; ++i) {
    const std::string name = "part" + std::to_string(i);
    parts[i].models.emplace_back().path = name + "-model";
    parts[i].models[0].content.steps = 2;
    for (const std::string rank : {"-rank0", "-rank1"}) {
      DeepSpeedRead<DeepSpeedOptimizer>& read = parts[i].optimizers.emplace_back();
      read.path = name + rank;
      read.content.stage = 1;
      read.content.steps = {2.0, std::nullopt};
      read.content.states = {{{"exp_avg", {}}, {"step", {}}}, {}};
    }
  }
  return parts;
}

void ExpectNames(const std::vector<DeepSpeedPart>& parts, size_t slices, const std::string& one,
                 const std::string& other) {
  const absl::Status status = CheckRanks(parts, slices);
  EXPECT_EQ(ReasonOf(status), Reason::kBadForeignFile) << status;
  EXPECT_EQ(MetadataOf(status)["file"], one);
  EXPECT_NE(status.message().find(other), absl::string_view::npos) << status;
}

TEST(DeepSpeedRanksTest, CheckRanks_FilesOfOneSave_AreFine) {
  EXPECT_TRUE(CheckRanks(Parts(4), 2).ok());
  EXPECT_TRUE(CheckRanks({}, 1).ok());
}

TEST(DeepSpeedRanksTest, CheckRanks_AnotherStep_NamesBothFiles) {
  auto parts = Parts(4);
  parts[3].optimizers[1].content.steps[0] = 102.0;
  ExpectNames(parts, 2, "part3-rank1", "part0-rank0");
  parts = Parts(4);
  parts[2].models[0].content.steps = 102;
  ExpectNames(parts, 2, "part2-model", "part0-model");
  parts[2].models[0].content.steps.reset();
  EXPECT_TRUE(CheckRanks(parts, 2).ok()) << "it does not say its step";
}

TEST(DeepSpeedRanksTest, CheckRanks_AnotherStageOfZero_NamesBothFiles) {
  auto parts = Parts(2);
  parts[1].optimizers[0].content.stage = 2;
  ExpectNames(parts, 1, "part1-rank0", "part0-rank0");
  parts[1].optimizers[0].content.stage.reset();
  ExpectNames(parts, 1, "part1-rank0", "part0-rank0");
}

TEST(DeepSpeedRanksTest, CheckRanks_ARankKeepsLessOrMore_NamesTheOneThatLacksIt) {
  auto parts = Parts(2);
  parts[0].optimizers[1].content.states[0].erase("exp_avg");
  ExpectNames(parts, 1, "part0-rank1", "part0-rank0");
  parts = Parts(2);
  parts[0].optimizers[0].content.states[0].erase("exp_avg");
  ExpectNames(parts, 1, "part0-rank0", "part0-rank1");
  // The optimizer of another slice of the same stage.
  parts = Parts(4);
  parts[3].optimizers[0].content.states[0]["max_exp_avg_sq"] = {};
  ExpectNames(parts, 2, "part2-rank0", "part3-rank0");
  // Stages hold other weights, whose optimizer may keep something else.
  parts = Parts(2);
  for (auto& optimizer : parts[1].optimizers) optimizer.content.states[0].erase("exp_avg");
  EXPECT_TRUE(CheckRanks(parts, 1).ok());
}

}  // namespace
}  // namespace cairn
