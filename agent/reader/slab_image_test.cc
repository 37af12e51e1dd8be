#include "agent/reader/slab_image.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace cairn {
namespace {

constexpr uint64_t kBytes = 16 * 4096;

std::shared_ptr<SharedMemory> MakeSlab() {
  auto slab = *SharedMemory::Create("test", kBytes);
  std::memset(slab->data(), 'a', kBytes);
  return slab;
}

TEST(SlabImageTest, Copy_RangeOutsideTheSlab_CopiesNothing) {
  SlabImage image(MakeSlab(), std::make_shared<const KeptSave>());
  std::string to(4096, '-');
  EXPECT_TRUE(image.Copy(kBytes - 4096, 4096, to.data()));
  EXPECT_EQ(to, std::string(4096, 'a'));
  to.assign(4096, '-');
  EXPECT_FALSE(image.Copy(kBytes - 4095, 4096, to.data()));
  EXPECT_FALSE(image.Copy(UINT64_MAX, 4096, to.data()));
  EXPECT_FALSE(image.Copy(4096, UINT64_MAX, to.data()));
  EXPECT_EQ(to, std::string(4096, '-'));
}

TEST(SlabImageTest, GiveUp_OthersCopy_ReturnsWhenNobodyReadsTheSlabAnyMore) {
  for (int i = 0; i < 50; ++i) {
    const auto slab = MakeSlab();
    SlabImage image(slab, std::make_shared<const KeptSave>());
    std::atomic<int> torn = 0;
    std::atomic<int> begun = 0;
    std::vector<std::thread> readers;
    for (int reader = 0; reader < 3; ++reader) {
      readers.emplace_back([&] {
        std::string to(kBytes, '-');
        while (image.Copy(0, kBytes, to.data())) {
          ++begun;
          if (to != std::string(kBytes, 'a')) ++torn;
        }
      });
    }
    while (begun == 0) std::this_thread::yield();
    image.GiveUp();
    std::memset(slab->data(), 'b', kBytes);  // what the next save does
    for (std::thread& reader : readers) reader.join();
    EXPECT_EQ(torn, 0);
    EXPECT_EQ(slab.use_count(), 1) << "its memory is let go";
  }
}

}  // namespace
}  // namespace cairn
