#include "agent/reader/round_pieces.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Rank 3 reads its own round of one file, whose items are 2.5 MiB at 4096 and 100 bytes behind that.
class RoundPiecesTest : public ::testing::Test {
 protected:
  RoundPiecesTest() {
    plan_.set_rank(3);
    v1::ReadFile& file = *plan_.add_files();
    for (const auto& [offset, size] : {std::pair(uint64_t{4096}, 5 * kMiB / 2), {4096 + 5 * kMiB / 2, 100}}) {
      file.add_item_offsets(offset);
      file.add_item_sizes(size);
    }
    round_ = plan_.add_rounds();
    round_->add_consumers(3);
  }

  v1::Read& AddRead(uint64_t file_offset, uint64_t bytes, uint64_t buffer_offset) {
    v1::Read& read = *round_->add_reads();
    read.set_file_offset(file_offset);
    read.set_bytes(bytes);
    read.set_buffer_offset(buffer_offset);
    return read;
  }
  v1::Copy& AddCopy(uint64_t source_offset, uint64_t bytes, uint32_t target, uint64_t target_offset) {
    v1::Copy& copy = *plan_.add_copies();
    copy.set_source_rank(3);
    copy.set_source_offset(source_offset);
    copy.set_element_bytes(bytes);
    copy.set_target(target);
    copy.set_target_offset(target_offset);
    return copy;
  }
  // Each piece as "offset+bytes>target:target_offset item@begin".
  std::vector<std::string> Pieces() const {
    const auto pieces = CutIntoPieces(plan_, 0);
    if (!pieces.has_value()) return {"none"};
    std::vector<std::string> texts;
    for (const RoundPiece& piece : *pieces) {
      texts.push_back(absl::StrCat(piece.offset, "+", piece.bytes(), ">", piece.target, ":", piece.target_offset, " ",
                                   piece.fragment.item, "@", piece.fragment.begin));
    }
    return texts;
  }

  v1::ReadPlan plan_;
  v1::ReadRound* round_;
};

TEST_F(RoundPiecesTest, CutIntoPieces_OneReadOfBothItems_IsCutAtBlocksAndItems) {
  AddRead(4096, 5 * kMiB / 2 + 100, 0);
  AddCopy(0, 5 * kMiB / 2, 0, 0);
  AddCopy(5 * kMiB / 2, 100, 1, 8);
  EXPECT_EQ(Pieces(), (std::vector<std::string>{"4096+1048576>0:0 0@0", "1052672+1048576>0:1048576 0@1048576",
                                                "2101248+524288>0:2097152 0@2097152", "2625536+100>1:8 1@0"}));
}

TEST_F(RoundPiecesTest, CutIntoPieces_ReadsInAnotherOrderThanTheBuffer_FollowsTheBuffer) {
  AddRead(8192, 10, 4096);
  AddRead(4096, 20, 0);
  AddCopy(4096, 10, 0, 0);
  AddCopy(0, 20, 1, 0);
  EXPECT_EQ(Pieces(), (std::vector<std::string>{"4096+20>1:0 0@0", "8192+10>0:0 0@4096"}));
}

TEST_F(RoundPiecesTest, CutIntoPieces_ACopyOutOfTwoReadsThatMeetInTheBuffer_HasAPieceOfEach) {
  AddRead(4096, 4096, 0);
  AddRead(4096 * 3, 50, 4096);
  AddCopy(0, 4146, 2, 7);
  EXPECT_EQ(Pieces(), (std::vector<std::string>{"4096+4096>2:7 0@0", "12288+50>2:4103 0@8192"}));
}

TEST_F(RoundPiecesTest, CutIntoPieces_EmptyReadsAndCopies_AreLeftOut) {
  AddRead(4096, 0, 0);
  AddRead(4096, 20, 0);
  AddCopy(0, 0, 5, 0);
  AddCopy(0, 20, 1, 0);
  EXPECT_EQ(Pieces(), std::vector<std::string>{"4096+20>1:0 0@0"});
}

TEST_F(RoundPiecesTest, CutIntoPieces_WhatIsNoPlainMoveOfEachByteOnce_HasNone) {
  AddRead(4096, 100, 0);
  EXPECT_EQ(Pieces(), std::vector<std::string>{"none"}) << "nobody takes them";
  AddCopy(0, 60, 0, 0);
  EXPECT_EQ(Pieces(), std::vector<std::string>{"none"}) << "40 bytes are left over";
  v1::Copy& rest = AddCopy(50, 50, 1, 0);
  EXPECT_EQ(Pieces(), std::vector<std::string>{"none"}) << "10 bytes go to two places";
  rest.set_source_offset(60);
  rest.set_element_bytes(41);
  EXPECT_EQ(Pieces(), std::vector<std::string>{"none"}) << "one byte was not read";
  rest.set_element_bytes(40);
  EXPECT_EQ(Pieces().size(), 2u);
  rest.add_casts(v1::DTYPE_FLOAT32);
  EXPECT_EQ(Pieces(), std::vector<std::string>{"none"}) << "a cast";
  rest.clear_casts();
  rest.add_extents(4);
  EXPECT_EQ(Pieces(), std::vector<std::string>{"none"}) << "strides";
}

TEST_F(RoundPiecesTest, CutIntoPieces_AnotherRankTakesBytes_HasNone) {
  AddRead(4096, 100, 0);
  AddCopy(0, 100, 0, 0);
  round_->add_consumers(4);
  EXPECT_EQ(Pieces(), std::vector<std::string>{"none"});
  round_->clear_consumers();
  round_->add_consumers(4);
  EXPECT_EQ(Pieces(), std::vector<std::string>{"none"});
}

TEST_F(RoundPiecesTest, CutIntoPieces_BytesWithoutAChecksum_HasNone) {
  v1::Read& read = AddRead(4096 + 5 * kMiB / 2, 101, 0);
  AddCopy(0, 101, 0, 0);
  EXPECT_EQ(Pieces(), std::vector<std::string>{"none"}) << "one byte behind the last item";
  read.set_bytes(100);
  plan_.mutable_copies(0)->set_element_bytes(100);
  EXPECT_EQ(Pieces().size(), 1u);
  plan_.mutable_files(0)->set_unverified(true);
  EXPECT_EQ(Pieces(), std::vector<std::string>{"none"});
}

}  // namespace
}  // namespace cairn
