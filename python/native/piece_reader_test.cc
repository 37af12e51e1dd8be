#include "python/native/piece_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "common/base/crc32c.h"
#include "common/file/unique_fd.h"

namespace {

using cairn::UniqueFd;

std::string Bytes(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
  return bytes;
}

class PieceReaderTest : public ::testing::Test {
 protected:
  PieceReaderTest() : content_(Bytes(1'000'000)), file_(memfd_create("pieces", MFD_CLOEXEC)) {
    EXPECT_EQ(write(file_.get(), content_.data(), content_.size()), static_cast<ssize_t>(content_.size()));
  }

  CairnPiece Piece(int64_t offset, int64_t bytes, int64_t target_offset) {
    return {file_.get(), 0, offset, bytes, target_.data(), static_cast<int64_t>(target_.size()), target_offset};
  }
  int64_t Read(const std::vector<CairnPiece>& pieces, int64_t threads = 3) {
    checksums_.assign(pieces.size(), 0);
    error_ = 12345;
    return cairn_read_pieces(pieces.data(), static_cast<int64_t>(pieces.size()), threads, checksums_.data(), &error_);
  }

  const std::string content_;
  UniqueFd file_;
  std::string target_ = std::string(1'200'000, 'x');
  std::vector<uint32_t> checksums_;
  int64_t error_ = 0;
};

TEST_F(PieceReaderTest, Read_SeveralPieces_StandInTheirPlacesWithTheirChecksums) {
  ASSERT_EQ(Read({Piece(0, 600'001, 100), Piece(700'000, 0, 5), Piece(600'001, 399'999, 800'000)}), -1);
  EXPECT_EQ(target_.substr(100, 600'001), content_.substr(0, 600'001));
  EXPECT_EQ(target_.substr(800'000, 399'999), content_.substr(600'001));
  EXPECT_EQ(target_.substr(0, 100), std::string(100, 'x'));
  EXPECT_EQ(target_.substr(600'101, 199'899), std::string(199'899, 'x'));
  EXPECT_EQ(checksums_[0], cairn::Crc32c(content_.data(), 600'001));
  EXPECT_EQ(checksums_[1], 0u);
  EXPECT_EQ(checksums_[2], cairn::Crc32c(content_.data() + 600'001, 399'999));
}

TEST_F(PieceReaderTest, Read_ThePieceLeavesItsTarget_IsNamedAndNothingIsRead) {
  for (const CairnPiece& bad : {Piece(0, 10, 1'199'991), Piece(0, 10, 1'300'000), Piece(0, -1, 0), Piece(-1, 10, 0),
                                Piece(0, 10, -1), Piece(0, int64_t{1} << 62, 1)}) {
    EXPECT_EQ(Read({Piece(0, 100, 0), bad}), 1);
    EXPECT_EQ(error_, 0);
    EXPECT_EQ(target_, std::string(target_.size(), 'x'));
  }
}

TEST_F(PieceReaderTest, Read_TheFileEndsWithinThePiece_SaysSo) {
  EXPECT_EQ(Read({Piece(0, 10, 0), Piece(999'999, 2, 100)}), 1);
  EXPECT_EQ(error_, -1);
}

TEST_F(PieceReaderTest, Read_TheDescriptorIsNone_ReturnsTheErrno) {
  CairnPiece piece = Piece(0, 10, 0);
  piece.descriptor = -1;
  EXPECT_EQ(Read({piece}), 0);
  EXPECT_EQ(error_, EBADF);
}

// The kernel cannot tell of a file of procfs whether a read of it would wait.
TEST_F(PieceReaderTest, Read_OnlyWhatIsCached_RefusesWhatMightWait) {
  const UniqueFd file(open("/proc/self/status", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(file.valid());
  CairnPiece piece = Piece(0, 100, 0);
  piece.descriptor = file.get();
  EXPECT_EQ(Read({piece}), -1);
  piece.may_wait = 1;
  EXPECT_EQ(Read({piece}), 0);
  EXPECT_EQ(error_, EOPNOTSUPP);
}

}  // namespace
