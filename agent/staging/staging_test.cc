#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "agent/staging/control_page.h"
#include "agent/staging/memory_limit.h"
#include "agent/staging/shared_memory.h"
#include "common/base/random_id.h"
#include "common/resources/page_size.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

TEST(SharedMemoryTest, Populate_NobodyHasWritten_MakesAllPages) {
  const auto memory = SharedMemory::Create("test", (uint64_t{40} << 20) + 1);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ((*memory)->bytes() % PageBytes(), 0u);
  ASSERT_TRUE((*memory)->Populate(3).ok());
  std::vector<unsigned char> resident((*memory)->bytes() / PageBytes());
  ASSERT_EQ(mincore((*memory)->data(), (*memory)->bytes(), resident.data()), 0);
  for (unsigned char page : resident) ASSERT_TRUE(page & 1);
}

TEST(SharedMemoryTest, OpenReadOnly_AnyUse_NeitherWritesNorCutsTheMemory) {
  const auto memory = SharedMemory::Create("test", 4096);
  ASSERT_TRUE(memory.ok());
  (*memory)->data()[0] = 'x';
  const auto fd = (*memory)->OpenReadOnly();
  ASSERT_TRUE(fd.ok()) << fd.status();
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0), MAP_FAILED);
  EXPECT_LT(write(fd->get(), "y", 1), 0);
  void* mapped = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd->get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_EQ(*static_cast<char*>(mapped), 'x');
  munmap(mapped, 4096);
  EXPECT_LT(ftruncate((*memory)->fd(), 0), 0) << "sealed";
}

TEST(SharedMemoryTest, Create_ImpossibleSize_IsAMemoryLimit) {
  EXPECT_TRUE(HasReason(SharedMemory::Create("test", UINT64_MAX).status(), Reason::kMemoryLimit));
  EXPECT_TRUE(HasReason(SharedMemory::Create("test", 0).status(), Reason::kMemoryLimit));
}

class MemoryLimitTest : public ::testing::Test {
 protected:
  void SetUp() override { root_ = std::string(::testing::TempDir()) + "/limits-" + RandomToken(6); }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
};

TEST_F(MemoryLimitTest, ReadMemoryLimits_Version2_TakesAllGroupsAboveWithoutPageCache) {
  Write("/proc/self/cgroup", "0::/pod/trainer\n");
  Write("/sys/fs/cgroup/pod/trainer/memory.max", "max\n");
  Write("/sys/fs/cgroup/pod/memory.max", "1000000\n");
  Write("/sys/fs/cgroup/pod/memory.current", "700000\n");
  Write("/sys/fs/cgroup/pod/memory.stat", "anon 200000\ninactive_file 400000\n");
  Write("/proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable:    5000 kB\n");
  const auto limits = ReadMemoryLimits(root_);
  ASSERT_EQ(limits.size(), 2u);
  EXPECT_EQ(limits[0].limit, 1'000'000u);
  EXPECT_EQ(limits[0].used, 300'000u);
  EXPECT_EQ(limits[1].limit, 5000u * 1024);
  EXPECT_TRUE(CheckMemory(700'000, 0, 0, limits).ok());
  const absl::Status refused = CheckMemory(700'001, 0, 0, limits);
  EXPECT_TRUE(HasReason(refused, Reason::kMemoryLimit));
  EXPECT_EQ(MetadataOf(refused)["limit"], "1000000");
  EXPECT_EQ(MetadataOf(refused)["used"], "300000");
}

TEST_F(MemoryLimitTest, ReadMemoryLimits_Version1_TakesTheGroupThatHasALimit) {
  Write("/proc/self/cgroup", "12:cpu,cpuacct:/x\n5:memory:/job\n1:name=systemd:/\n");
  Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "5000000");
  Write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1000000");
  Write("/sys/fs/cgroup/memory/job/memory.stat", "cache 9\ntotal_inactive_file 400000\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  const auto limits = ReadMemoryLimits(root_);
  ASSERT_EQ(limits.size(), 1u);
  EXPECT_EQ(limits[0].limit, 5'000'000u);
  EXPECT_EQ(limits[0].used, 600'000u);
}

TEST_F(MemoryLimitTest, CheckMemory_Budget_CountsWhatIsHeld) {
  EXPECT_TRUE(CheckMemory(60, 40, 100, {}).ok());
  EXPECT_TRUE(HasReason(CheckMemory(61, 40, 100, {}), Reason::kMemoryLimit));
  // The sizes themselves are rounded, and seem to fit.
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  EXPECT_NE(CheckMemory(96 * kMiB, 32 * kMiB + 2048, 128 * kMiB, {}).message().find(": 2.00 KiB are missing"),
            std::string::npos);
  EXPECT_TRUE(HasReason(CheckMemory(UINT64_MAX, 40, 100, {}), Reason::kMemoryLimit));
  EXPECT_TRUE(ReadMemoryLimits("/nowhere").empty());
}

// Does what a trainer does, by the rules in local_agent_service.proto.
class TrainerPage {
 public:
  explicit TrainerPage(ControlPage& page) : words_(reinterpret_cast<uint64_t*>(page.memory()->data())) {}
  void Report(int64_t step) { Word(1).store(static_cast<uint64_t>(step) + 1); }
  uint64_t order() { return Word(2).load(); }
  bool replaced() { return Word(4).load() == 1; }
  void GiveUp(int64_t step) { Word(3).store(static_cast<uint64_t>(step) + 1); }
  uint64_t magic() { return Word(0).load(); }

 private:
  std::atomic_ref<uint64_t> Word(size_t i) { return std::atomic_ref(words_[i]); }
  uint64_t* const words_;
};

TEST(ControlPageTest, Arm_StepWasReported_IsRefused) {
  auto page = ControlPage::Create();
  ASSERT_TRUE(page.ok());
  TrainerPage trainer(**page);
  EXPECT_EQ(trainer.magic(), kControlPageMagic);
  EXPECT_EQ((*page)->CurrentStep(), std::nullopt);
  trainer.Report(0);
  EXPECT_EQ((*page)->CurrentStep(), 0);
  trainer.Report(10);
  EXPECT_FALSE((*page)->Arm(10));
  EXPECT_FALSE((*page)->Arm(3));
  EXPECT_EQ(trainer.order(), 0u);
  EXPECT_TRUE((*page)->Arm(11));
  EXPECT_EQ(trainer.order(), 11u << 2 | 1);
  EXPECT_TRUE((*page)->Agree(11));
  EXPECT_EQ(trainer.order(), 11u << 2 | 2);
  (*page)->Disarm();
  EXPECT_EQ(trainer.order(), 0u);
  EXPECT_TRUE((*page)->Arm(12));
  trainer.GiveUp(12);
  EXPECT_FALSE((*page)->Agree(12));
  EXPECT_EQ(trainer.order(), 0u);
}

TEST(ControlPageTest, Replaced_AfterAnAgreement_IsSeenAndTheAgreementIsGone) {
  auto page = ControlPage::Create();
  ASSERT_TRUE(page.ok());
  TrainerPage trainer(**page);
  EXPECT_TRUE((*page)->Arm(12));
  EXPECT_TRUE((*page)->Agree(12));
  EXPECT_FALSE(trainer.replaced());
  (*page)->Replaced();
  EXPECT_TRUE(trainer.replaced());
  EXPECT_EQ(trainer.order(), 0u);
}

TEST(ControlPageTest, StagedBytes_OfWhatIsCopiedNow_IsTheTrainersWord) {
  auto page = ControlPage::Create();
  ASSERT_TRUE(page.ok());
  auto* words = reinterpret_cast<uint64_t*>((*page)->memory()->data());  // as local_agent_service.proto has them
  EXPECT_EQ((*page)->StagedBytes(3), 0u);
  words[5] = 3;
  words[6] = 8192;
  EXPECT_EQ((*page)->StagedBytes(3), 8192u);
  EXPECT_EQ((*page)->StagedBytes(4), 0u) << "the word speaks of other copies";
}

TEST(ControlPageTest, ArmAndReport_AtTheSameTime_OneOfThemSeesTheOther) {
  auto page = ControlPage::Create();
  ASSERT_TRUE(page.ok());
  TrainerPage trainer(**page);
  std::atomic<int64_t> turn = 0;
  constexpr int64_t kSteps = 2'000;
  bool trainer_saw = false;
  std::thread other([&] {
    for (int64_t step = 1; step <= kSteps; ++step) {
      while (turn.load() != step) std::this_thread::yield();
      trainer.Report(step);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      trainer_saw = trainer.order() == (static_cast<uint64_t>(step) << 2 | 1);
      turn = -step;
    }
  });
  for (int64_t step = 1; step <= kSteps; ++step) {
    (*page)->Disarm();
    turn = step;
    const bool armed = (*page)->Arm(step);
    while (turn.load() != -step) std::this_thread::yield();
    // Armed, and the trainer passed the step without noticing: the save would be lost.
    ASSERT_TRUE(!armed || trainer_saw) << step;
  }
  other.join();
}

}  // namespace
}  // namespace cairn
