// Tests what happens when the system refuses threads and memory.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/resources/aligned_buffer.h"
#include "common/resources/memory.h"
#include "common/resources/testing/address_space.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

class ScarcityTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!LimitedAddressSpace::Works()) GTEST_SKIP() << "a sanitizer's memory cannot be limited";
  }
};

TEST_F(ScarcityTest, StartThread_SystemRefuses_TellsWhatTheThreadWasFor) {
  std::atomic<bool> go = false;
  std::vector<std::thread> held;
  absl::Status refused;
  {
    const LimitedAddressSpace limited(1 << 20);
    // The C library uses the stacks of ended threads again, so the first threads may start.
    for (int i = 0; i < 100 && refused.ok(); ++i) {
      auto thread = StartThread("to write step 7", [&] { go.wait(false); });
      refused = thread.status();
      if (thread.ok()) held.push_back(*std::move(thread));
    }
  }
  go = true;
  go.notify_all();
  for (std::thread& thread : held) thread.join();
  EXPECT_TRUE(HasReason(refused, Reason::kMemoryLimit)) << refused;
  EXPECT_NE(refused.message().find("to write step 7"), std::string::npos) << refused;
  auto later = StartThread("later", [] {});
  ASSERT_TRUE(later.ok()) << later.status();
  later->join();
}

TEST_F(ScarcityTest, RunOnThreads_SystemRefuses_UsesTheThreadsThatStarted) {
  std::atomic<int> next = 0;
  std::atomic<int> done = 0;
  const auto work = [&] {
    while (next++ < 1000) ++done;
  };
  {
    const LimitedAddressSpace limited(1 << 20);
    RunOnThreads(64, work);
  }
  EXPECT_EQ(done, 1000);
  next = done = 0;
  RunOnThreads(4, work);
  EXPECT_EQ(done, 1000);
  next = done = 0;
  RunOnThreads(0, work);
  EXPECT_EQ(done, 1000) << "this thread always works";
}

TEST_F(ScarcityTest, WithMemory_SystemRefuses_TellsWhatTheMemoryWasFor) {
  const auto read = [](size_t bytes) {
    return WithMemory("to read step 7", [&]() -> absl::StatusOr<std::string> { return std::string(bytes, 'x'); });
  };
  const LimitedAddressSpace limited(1 << 20);
  const auto refused = read(64 << 20);
  EXPECT_TRUE(HasReason(refused.status(), Reason::kMemoryLimit)) << refused.status();
  EXPECT_NE(refused.status().message().find("to read step 7"), std::string::npos);
  EXPECT_TRUE(HasReason(read(SIZE_MAX).status(), Reason::kMemoryLimit)) << "longer than any string";
  EXPECT_EQ(read(3).value(), "xxx");
  const auto aligned = [](size_t bytes) {
    return WithMemory("aligned", [&] {
      const AlignedBuffer buffer(bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 4096, 0u);
      return absl::OkStatus();
    });
  };
  EXPECT_TRUE(HasReason(aligned(64 << 20), Reason::kMemoryLimit));
  EXPECT_TRUE(HasReason(aligned(SIZE_MAX), Reason::kMemoryLimit)) << "rounded up it would be none";
  EXPECT_TRUE(aligned(0).ok());
  EXPECT_TRUE(aligned(5000).ok());
}

}  // namespace
}  // namespace cairn
