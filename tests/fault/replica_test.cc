// Tests the real coordinator with ranks that leave out what it needs to compare: it must take nothing for equal unseen.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "common/status/reason.h"
#include "tests/testing/fake_agent.h"
#include "tests/testing/process.h"

namespace cairn::testing {
namespace {

constexpr int kRanks = 3;

class ReplicaTest : public ::testing::Test {
 protected:
  ~ReplicaTest() override {
    agents_.clear();
    if (HasFailure()) std::fprintf(stderr, "%s\n", ReadWhole(directory_.path() + "/log").c_str());
  }

  void Start(const std::string& flag, const std::function<void(FakeAgentOptions&)>& change) {
    const std::string root = directory_.path() + "/root", file = directory_.path() + "/address";
    std::filesystem::create_directory(root);
    setenv("XDG_RUNTIME_DIR", directory_.path().c_str(), 1);  // the copies of tokens go there
    coordinator_ = Process({"coordinator/cairn-coordinator", "--root", root, "--address-file", file, flag},
                           directory_.path() + "/log");
    for (int i = 0; i < 3000 && !std::filesystem::exists(file); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::string address = ReadWhole(file);
    while (!address.empty() && address.back() == '\n') address.pop_back();
    for (int rank = 0; rank < kRanks; ++rank) {
      FakeAgentOptions options;
      options.coordinator = address;
      options.root = root;
      options.rank = rank;
      options.world_size = kRanks;
      change(options);
      agents_.push_back(std::make_unique<FakeAgent>(options));
    }
  }

  // Returns what every rank hears of the save.
  std::vector<absl::Status> Save(int64_t step) {
    for (auto& agent : agents_) agent->Save(step);
    std::vector<absl::Status> outcomes;
    for (auto& agent : agents_) outcomes.push_back(agent->WaitOutcome(step));
    return outcomes;
  }

  TemporaryDirectory directory_;
  Process coordinator_;
  std::vector<std::unique_ptr<FakeAgent>> agents_;
};

TEST_F(ReplicaTest, Save_SharedObjectHasNoChecksums_IsNotCommitted) {
  Start("--check-replicas=never", [](FakeAgentOptions& options) { options.silent_on_objects = true; });
  for (const absl::Status& outcome : Save(1)) {
    EXPECT_TRUE(HasReason(outcome, Reason::kBadRequest)) << outcome;
    EXPECT_NE(outcome.message().find("object meta "), std::string::npos) << outcome;
  }
}

TEST_F(ReplicaTest, Save_ARankMustCheckItsTensorsAndDoesNot_IsNotCommitted) {
  Start("--check-replicas=always", [](FakeAgentOptions& options) { options.silent_on_tensors = options.rank == 1; });
  for (const absl::Status& outcome : Save(1)) {
    EXPECT_TRUE(HasReason(outcome, Reason::kLayoutChanged)) << outcome;
    EXPECT_EQ(MetadataOf(outcome)["ranks"], "1");
  }
}

TEST_F(ReplicaTest, Save_ARankDidNotCheckItsTensors_LaterOnesStillCompare) {
  Start("--check-replicas=first", [](FakeAgentOptions& options) { options.silent_on_tensors = options.rank != 0; });
  for (const absl::Status& outcome : Save(1)) EXPECT_TRUE(outcome.ok()) << outcome;
  for (const absl::Status& outcome : Save(2)) EXPECT_TRUE(outcome.ok()) << outcome;
  EXPECT_TRUE(agents_[0]->asked_to_check()) << "the first save is not taken for one that was compared";
}

}  // namespace
}  // namespace cairn::testing
