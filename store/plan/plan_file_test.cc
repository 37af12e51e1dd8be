#include "store/plan/plan_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/digest.h"
#include "common/resources/testing/address_space.h"
#include "common/status/reason.h"
#include "store/posix/posix_storage.h"
#include "store/storage/testing/memory_file.h"

namespace cairn {
namespace {

constexpr size_t kHead = 36;

absl::StatusOr<PlanFile> Open(const std::string& bytes) { return PlanFile::Open(std::make_unique<MemoryFile>(bytes)); }

uint64_t NumberAt(const std::string& bytes, size_t at, size_t size) {
  uint64_t number = 0;
  std::memcpy(&number, bytes.data() + at, size);
  return number;
}

// Gives damage below the checksums the checksums that fit, as whoever makes such a file on purpose does.
std::string Signed(std::string bytes) {
  if (bytes.size() < kHead) return bytes;
  const uint64_t index = std::min<uint64_t>(NumberAt(bytes, 12, 8), bytes.size() - kHead);
  const uint32_t index_crc = Crc32c(bytes.data() + kHead, index);
  std::memcpy(bytes.data() + 28, &index_crc, 4);
  const uint32_t head_crc = Crc32c(bytes.data(), 32);
  std::memcpy(bytes.data() + 32, &head_crc, 4);
  return bytes;
}

class PlanFileTest : public testing::Test {
 protected:
  PlanFileTest() {
    root_ = testing::TempDir() + "/plan-XXXXXX";
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    storage_ = *PosixStorage::Open(root_, false);
    inputs_.bins = 3;
    inputs_.moves = MovePolicy::kAuto;
    // Some ranks share a layout, one layout is empty, some nodes have no name.
    for (int rank = 0; rank < 10; ++rank) {
      const std::string layout = rank == 4 ? "" : absl::StrCat("layout ", rank / 2, std::string(100, 'x'));
      bytes_.push_back(std::make_shared<const std::string>(layout));
      inputs_.layout.push_back(Digest(layout));
      inputs_.node.push_back(rank < 3 ? "" : absl::StrCat("node", rank / 4));
    }
  }
  ~PlanFileTest() override { std::filesystem::remove_all(root_); }

  std::string Written() {
    const auto size = WritePlanFile(*storage_, "p", inputs_, bytes_);
    EXPECT_TRUE(size.ok()) << size.status();
    std::string bytes = *storage_->Read("p", 1 << 20);
    EXPECT_EQ(bytes.size(), *size);
    return bytes;
  }

  std::string root_;
  std::unique_ptr<PosixStorage> storage_;
  PlanInputs inputs_;
  std::vector<std::shared_ptr<const std::string>> bytes_;
};

TEST_F(PlanFileTest, Open_WrittenFile_GivesThePlanBack) {
  const auto file = Open(Written());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->inputs().bins, 3);
  EXPECT_EQ(file->inputs().moves, MovePolicy::kAuto);
  EXPECT_EQ(file->inputs().layout, inputs_.layout);
  EXPECT_EQ(file->inputs().node, inputs_.node);
  EXPECT_EQ(file->layouts().size(), 6u);
  for (size_t rank = 0; rank < bytes_.size(); ++rank) {
    const PlanFile::Layout* layout = file->Find(inputs_.layout[rank]);
    ASSERT_NE(layout, nullptr);
    EXPECT_EQ(file->ReadLayout(*layout).value(), *bytes_[rank]);
  }
  EXPECT_EQ(file->Find(Digest("another")), nullptr);
}

TEST_F(PlanFileTest, Write_TooManyRanksToRead_IsRefused) {
  inputs_.layout.assign((1 << 17) + 1, Digest(""));
  inputs_.node.assign(inputs_.layout.size(), "");
  bytes_.assign(inputs_.layout.size(), std::make_shared<const std::string>());
  const auto many = WritePlanFile(*storage_, "p", inputs_, bytes_);
  EXPECT_TRUE(HasReason(many.status(), Reason::kMessageTooLarge)) << many.status();
  inputs_.layout.resize(1 << 12);
  inputs_.node.assign(inputs_.layout.size(), std::string(1 << 13, 'n'));
  bytes_.resize(inputs_.layout.size());
  const auto names = WritePlanFile(*storage_, "p", inputs_, bytes_);
  EXPECT_TRUE(HasReason(names.status(), Reason::kMessageTooLarge)) << names.status();
  EXPECT_FALSE(storage_->Exists("p"));
}

TEST_F(PlanFileTest, Open_FlippedBitOrLostByte_IsFound) {
  const std::string whole = Written();
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_TRUE(HasReason(Open(whole.substr(0, length)).status(), Reason::kPlanUnknown)) << length;
  }
  EXPECT_TRUE(HasReason(Open(whole + "x").status(), Reason::kPlanUnknown));
  const uint64_t layouts = whole.size() - NumberAt(whole, 20, 8);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    const auto file = Open(damaged);
    EXPECT_EQ(file.ok(), at >= layouts) << at;
    if (!file.ok()) continue;
    int unread = 0;
    for (const PlanFile::Layout& layout : file->layouts()) {
      const auto read = file->ReadLayout(layout);
      unread += HasReason(read.status(), Reason::kPlanUnknown);
    }
    EXPECT_EQ(unread, 1) << at;
  }
}

TEST_F(PlanFileTest, Open_AnotherVersion_IsRefused) {
  std::string newer = Written();
  newer[8] = 2;
  EXPECT_FALSE(Open(newer).ok());
  const auto file = Open(Signed(newer));
  EXPECT_TRUE(HasReason(file.status(), Reason::kPlanUnknown)) << file.status();
}

TEST_F(PlanFileTest, Open_LengthsBeyondTheFile_TakeNoMemory) {
  if (!LimitedAddressSpace::Works()) GTEST_SKIP() << "a sanitizer's memory cannot be limited";
  const std::string whole = Written();
  const LimitedAddressSpace limited(64 << 20);
  for (const size_t field : {size_t{12}, size_t{20}}) {
    for (const uint64_t length : {uint64_t{1} << 62, ~uint64_t{0}, ~uint64_t{0} - kHead, uint64_t{1} << 33}) {
      std::string hostile = whole;
      std::memcpy(hostile.data() + field, &length, 8);
      EXPECT_TRUE(HasReason(Open(Signed(hostile)).status(), Reason::kPlanUnknown)) << field << " " << length;
    }
  }
}

// Whatever is accepted keeps every promise of the header, though the checksums fit.
TEST_F(PlanFileTest, Open_HostileBytesWithFittingChecksums_StaysWithinTheFile) {
  const std::string whole = Written();
  const uint64_t index = NumberAt(whole, 12, 8);
  int accepted = 0;
  for (uint32_t seed = 1; seed <= 20000; ++seed) {
    std::mt19937 random(seed);
    std::string hostile = whole;
    for (uint32_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t at = random() % 3 == 0 ? 8 + random() % 20 : kHead + random() % index;
      if (random() % 4 == 0) {
        const size_t many = std::min<size_t>(1 + random() % 40, hostile.size() - at);
        random() % 2 == 0 ? hostile.erase(at, many) : hostile.insert(at, hostile.substr(at, many));
      } else {
        hostile[at] = static_cast<char>(random() % 2 == 0 ? random() : 0xff);
      }
    }
    // Often the lengths fit too, so that what is behind them is reached.
    if (random() % 2 == 0 && hostile.size() > kHead) {
      const uint64_t layouts = NumberAt(whole, 20, 8);
      if (hostile.size() > kHead + layouts) {
        const uint64_t fitting = hostile.size() - kHead - layouts;
        std::memcpy(hostile.data() + 8, "\1\0\0\0", 4);
        std::memcpy(hostile.data() + 12, &fitting, 8);
        std::memcpy(hostile.data() + 20, &layouts, 8);
      }
    }
    const auto file = Open(Signed(hostile));
    if (!file.ok()) {
      ASSERT_TRUE(HasReason(file.status(), Reason::kPlanUnknown)) << "seed " << seed << ": " << file.status();
      continue;
    }
    ++accepted;
    ASSERT_EQ(file->inputs().layout.size(), file->inputs().node.size()) << "seed " << seed;
    uint64_t sum = 0;
    for (const PlanFile::Layout& layout : file->layouts()) {
      ASSERT_LE(layout.offset + layout.bytes, hostile.size()) << "seed " << seed;
      sum += layout.bytes;
      (void)file->ReadLayout(layout);
    }
    ASSERT_LE(sum, hostile.size()) << "seed " << seed;
    for (const std::string& digest : file->inputs().layout) ASSERT_NE(file->Find(digest), nullptr) << "seed " << seed;
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace cairn
