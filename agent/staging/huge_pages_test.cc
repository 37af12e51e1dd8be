#include "agent/staging/huge_pages.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/base/random_id.h"

namespace cairn {
namespace {

class HugePagesTest : public ::testing::Test {
 protected:
  void SetUp() override { root_ = std::string(::testing::TempDir()) + "/pages-" + RandomToken(6); }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = root_ + "/sys/kernel/mm/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void SetAside(int free, int reserved, int allowed, int taken) {
    Write("hugepages/hugepages-2048kB/free_hugepages", std::to_string(free) + "\n");
    Write("hugepages/hugepages-2048kB/resv_hugepages", std::to_string(reserved) + "\n");
    Write("hugepages/hugepages-2048kB/nr_overcommit_hugepages", std::to_string(allowed) + "\n");
    Write("hugepages/hugepages-2048kB/surplus_hugepages", std::to_string(taken) + "\n");
  }
  HugePages Read() const { return ReadHugePages(root_); }
  std::string root_;
};

TEST_F(HugePagesTest, Read_KernelTellsNothing_HasNone) {
  EXPECT_FALSE(Read().by_itself);
  EXPECT_EQ(Read().set_aside, 0u);
}

TEST_F(HugePagesTest, Read_OneSize_TakesTheWordInBrackets) {
  Write("transparent_hugepage/shmem_enabled", "always within_size advise [never] deny force\n");
  EXPECT_FALSE(Read().by_itself);
  Write("transparent_hugepage/shmem_enabled", "always within_size [advise] never deny force\n");
  EXPECT_TRUE(Read().by_itself);
}

TEST_F(HugePagesTest, Read_SizeHasItsOwnWord_ItGoesBeforeThatOfAll) {
  Write("transparent_hugepage/shmem_enabled", "always within_size [advise] never deny force\n");
  Write("transparent_hugepage/hugepages-2048kB/shmem_enabled", "always inherit within_size advise [never]\n");
  EXPECT_FALSE(Read().by_itself);
  Write("transparent_hugepage/hugepages-2048kB/shmem_enabled", "always [inherit] within_size advise never\n");
  EXPECT_TRUE(Read().by_itself);
}

TEST_F(HugePagesTest, Read_SomeAreReservedOrTaken_CountsTheOthers) {
  SetAside(10, 3, 0, 0);
  EXPECT_EQ(Read().set_aside, 7u);
  SetAside(0, 0, 8, 5);
  EXPECT_EQ(Read().set_aside, 3u);
  SetAside(2, 4, 5, 6);  // read while they changed
  EXPECT_EQ(Read().set_aside, 0u);
}

}  // namespace
}  // namespace cairn
