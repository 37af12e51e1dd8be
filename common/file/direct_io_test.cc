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

TEST(DirectIoOfNoFileTest, WriteBlocksAt_CannotBeWritten_GivesTheErrno) {
  EXPECT_EQ(WriteBlocksAt(-1, "x", 0), EBADF);
  const UniqueFd full(open("/dev/full", O_WRONLY));
  ASSERT_TRUE(full.valid());
  EXPECT_EQ(WriteBlocksAt(full.get(), "x", 0), ENOSPC);
}

}  // namespace
}  // namespace cairn
