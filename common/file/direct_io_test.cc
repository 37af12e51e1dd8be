#include "common/file/direct_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "common/base/random_id.h"
#include "common/file/unique_fd.h"
#include "common/resources/aligned_buffer.h"

namespace cairn {
namespace {

class DirectIoTest : public testing::Test {
 protected:
  ~DirectIoTest() override { std::filesystem::remove(path_); }

  std::string Content() const {
    std::ifstream file(path_, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  const std::string path_ = testing::TempDir() + "/direct-" + RandomToken(8);
  const UniqueFd fd_{open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600)};
};

// The file system of the test may have direct I/O or not: the file is the same.
TEST_F(DirectIoTest, WriteBlocksAt_ThenTheRestWithoutDirectIo_FileHasBoth) {
  ASSERT_TRUE(fd_.valid());
  AlignedBuffer blocks(5 * kIoAlignment);
  for (size_t i = 0; i < blocks.size(); ++i) blocks.data()[i] = static_cast<char>(i % 251);
  BeginDirectIo(fd_.get());
  EXPECT_EQ(WriteBlocksAt(fd_.get(), {blocks.data(), blocks.size()}, 0), 0);
  EXPECT_EQ(EndDirectIo(fd_.get()), 0);
  EXPECT_EQ(fcntl(fd_.get(), F_GETFL) & O_DIRECT, 0);
  EXPECT_EQ(WriteBlocksAt(fd_.get(), "a tail", blocks.size()), 0);
  EXPECT_EQ(Content(), std::string(blocks.data(), blocks.size()) + "a tail");
}

TEST_F(DirectIoTest, BeginDirectIo_SaysWhetherTheFlagIsOn) {
  const bool direct = BeginDirectIo(fd_.get());
  EXPECT_EQ(direct, (fcntl(fd_.get(), F_GETFL) & O_DIRECT) != 0);
}

TEST(ShortWritesTest, Took_PartOfABlockOfADirectWrite_GoesOnAtTheBlock) {
  ShortWrites writes(3 * kIoAlignment + 10);
  EXPECT_TRUE(writes.Took(kIoAlignment + 512, /*direct=*/true));
  EXPECT_EQ(writes.done(), kIoAlignment);
  EXPECT_TRUE(writes.Took(100, /*direct=*/true)) << "the next write may take more";
  EXPECT_EQ(writes.done(), kIoAlignment);
  EXPECT_TRUE(writes.Took(kIoAlignment, /*direct=*/true));
  EXPECT_TRUE(writes.Took(100, /*direct=*/true));
  EXPECT_FALSE(writes.Took(100, /*direct=*/true));
  EXPECT_FALSE(writes.finished());
  EXPECT_TRUE(writes.Took(kIoAlignment + 10, /*direct=*/true)) << "the end of a write needs no whole block";
  EXPECT_TRUE(writes.finished());
}

TEST(ShortWritesTest, Took_WithoutDirectWrites_CountsEachByte) {
  ShortWrites writes(1000);
  for (int i = 0; i < 999; ++i) ASSERT_TRUE(writes.Took(1, /*direct=*/false));
  EXPECT_TRUE(writes.Took(0, /*direct=*/false));
  EXPECT_FALSE(writes.Took(0, /*direct=*/false));
  EXPECT_EQ(writes.done(), 999u);
}

TEST(DirectIoOfNoFileTest, WriteBlocksAt_CannotBeWritten_GivesTheErrno) {
  EXPECT_EQ(WriteBlocksAt(-1, "x", 0), EBADF);
  const UniqueFd full(open("/dev/full", O_WRONLY));
  ASSERT_TRUE(full.valid());
  EXPECT_EQ(WriteBlocksAt(full.get(), "x", 0), ENOSPC);
}

}  // namespace
}  // namespace cairn
