// Two keepers, each with a worker of its own, and this test as their coordinator.
#include "gpu/nccl/group_keeper.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/status/reason.h"

namespace cairn {
namespace {

using v1::GroupState;

std::string Absolute(const char* path) { return std::filesystem::absolute(path).string(); }

// Keeps what one rank tells the coordinator.
class Told {
 public:
  void Take(std::vector<GroupState> states) {
    MutexLock lock(mutex_);
    states_ = std::move(states);
    changed_.NotifyAll();
  }
  GroupState Await(const std::function<bool(const GroupState&)>& wanted) {
    MutexLock lock(mutex_);
    while (true) {
      const GroupState now = states_.empty() ? GroupState() : states_.front();
      if (wanted(now)) return now;
      changed_.Wait(mutex_);
    }
  }
  GroupState Await(GroupState::Phase phase) {
    return Await([&](const GroupState& now) { return now.phase() == phase; });
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<GroupState> states_ ABSL_GUARDED_BY(mutex_);
};

class GroupKeeperTest : public testing::Test {
 protected:
  GroupKeeperTest() {
    controls_ = testing::TempDir() + "/controls";
    setenv("STAND_IN_NCCL", controls_.c_str(), 1);
    std::ofstream(controls_) << "shared_device 1\n";
    for (uint32_t rank = 0; rank < 2; ++rank) {
      GroupKeeperOptions options;
      options.rank = rank;
      options.worker.program = Absolute("gpu/share/cairn-gpu-worker");
      options.worker.libcuda = Absolute("tests/testing/stand_in/cuda/libcairn_stand_in_cuda.so");
      options.worker.libnccl = Absolute("tests/testing/stand_in/nccl/libcairn_stand_in_nccl.so");
      options.on_change = [this, rank](std::vector<GroupState> states) { told_[rank].Take(std::move(states)); };
      keepers_[rank] = std::make_unique<GroupKeeper>(std::move(options));
    }
  }
  ~GroupKeeperTest() override {
    for (auto& keeper : keepers_) keeper.reset();
    std::filesystem::remove(controls_);
  }

  static v1::GroupOrder Order(uint64_t number, const std::string& id) {
    v1::GroupOrder order;
    order.set_number(number);
    order.add_ranks(0);
    order.add_ranks(1);
    order.set_unique_id(id);
    return order;
  }
  void Tell(const std::vector<v1::GroupOrder>& orders) {
    for (auto& keeper : keepers_) keeper->Follow(orders);
  }
  std::string Build(uint64_t number) {
    Tell({Order(number, "")});
    const std::string id =
        told_[0]
            .Await([&](const GroupState& now) { return now.number() == number && !now.unique_id().empty(); })
            .unique_id();
    Tell({Order(number, id)});
    return id;
  }

  std::string controls_;
  Told told_[2];
  std::unique_ptr<GroupKeeper> keepers_[2];
};

TEST_F(GroupKeeperTest, Follow_AGroup_IsReadyOnAllRanks) {
  Build(7);
  for (Told& told : told_) {
    const GroupState state = told.Await(GroupState::READY);
    EXPECT_EQ(state.number(), 7);
    EXPECT_EQ(state.unique_id(), "") << "the secret is told no longer than it is needed";
  }
  const auto group = keepers_[1]->Find(7);
  ASSERT_NE(group, nullptr);
  EXPECT_EQ(group->ranks, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(keepers_[1]->Find(8), nullptr);
}

TEST_F(GroupKeeperTest, Follow_NoGroupAnyMore_EndsTheWorker) {
  Build(7);
  for (Told& told : told_) told.Await(GroupState::READY);
  const pid_t pid = keepers_[0]->Find(7)->worker->pid();
  Tell({});
  for (Told& told : told_) told.Await([](const GroupState& now) { return now.number() == 0; });
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST_F(GroupKeeperTest, Follow_AnotherGroup_HasAnotherIdAndAnotherWorker) {
  const std::string first = Build(7);
  for (Told& told : told_) told.Await(GroupState::READY);
  const pid_t pid = keepers_[0]->Find(7)->worker->pid();
  EXPECT_NE(Build(8), first);
  for (Told& told : told_) told.Await(GroupState::READY);
  EXPECT_EQ(keepers_[0]->Find(7), nullptr);
  EXPECT_NE(keepers_[0]->Find(8)->worker->pid(), pid);
}

TEST_F(GroupKeeperTest, Follow_AnOrderToEndWhileItJoins_DoesNotWaitForTheOthers) {
  keepers_[0]->Follow({Order(7, "")});
  const std::string id = told_[0].Await([](const GroupState& now) { return !now.unique_id().empty(); }).unique_id();
  keepers_[0]->Follow({Order(7, id)});  // rank 1 never comes
  keepers_[0]->Follow({});
  told_[0].Await([](const GroupState& now) { return now.number() == 0; });
}

TEST_F(GroupKeeperTest, Follow_TheLibraryRefuses_IsBrokenWithItsWords) {
  std::ofstream(controls_) << "init_result 5\n";
  Build(7);
  const GroupState state = told_[0].Await(GroupState::BROKEN);
  EXPECT_NE(state.error().find("ncclInvalidUsage"), std::string::npos) << state.error();
}

TEST_F(GroupKeeperTest, Break_AGroup_EndsTheWorkerAndTellsTheCoordinator) {
  Build(7);
  for (Told& told : told_) told.Await(GroupState::READY);
  const pid_t pid = keepers_[0]->Find(7)->worker->pid();
  keepers_[0]->Break(7, absl::UnavailableError("the test wants it"));
  EXPECT_EQ(told_[0].Await(GroupState::BROKEN).error(), "the test wants it");
  EXPECT_EQ(keepers_[0]->Find(7), nullptr);
  const absl::Status why = keepers_[0]->WhyNot(7);
  EXPECT_EQ(why.message(), "the group of the exchange over NCCL has broken: the test wants it");
  EXPECT_TRUE(HasReason(why, Reason::kTransportFailed));
  Tell({});
  told_[0].Await([](const GroupState& now) { return now.number() == 0; });
  EXPECT_EQ(keepers_[0]->WhyNot(7), why) << "also when the coordinator has ended it";
  EXPECT_EQ(kill(pid, 0), -1);
}

}  // namespace
}  // namespace cairn
