#include "corpus/bpe/merge_record.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace cairn::corpus {
namespace {

using Merges = MergeRecord::Merges;

class MergeRecordTest : public testing::Test {
 protected:
  MergeRecordTest() : path_(testing::TempDir() + "/merges-" + std::to_string(getpid())) {
    std::filesystem::remove(path_);
  }
  Merges Reopen(const std::string& fingerprint = "this") {
    const auto record = MergeRecord::Open(path_, fingerprint);
    EXPECT_TRUE(record.ok()) << record.status();
    return record->merges();
  }
  void Append(const Merges& more) {
    auto record = MergeRecord::Open(path_, "this");
    ASSERT_TRUE(record.ok()) << record.status();
    ASSERT_TRUE(record->Append(more).ok());
  }
  std::string Content() const {
    std::ostringstream content;
    content << std::ifstream(path_, std::ios::binary).rdbuf();
    return content.str();
  }
  void Write(const std::string& content) const { std::ofstream(path_, std::ios::binary) << content; }

  const std::string path_;
  const Merges one_ = {{"a", "b"}, {std::string(1, '\0'), " \n"}};
  const Merges two_ = {{"\xFF", "\xE4\xB8"}};
};

TEST_F(MergeRecordTest, Append_Twice_IsThereWhenItIsOpenedAgain) {
  EXPECT_EQ(Reopen(), Merges{});
  Append(one_);
  EXPECT_EQ(Reopen(), one_);
  Append(two_);
  Append({});
  Merges all = one_;
  all.insert(all.end(), two_.begin(), two_.end());
  EXPECT_EQ(Reopen(), all);
}

TEST_F(MergeRecordTest, Destructor_NoMerge_LeavesNoFile) {
  {
    const auto record = MergeRecord::Open(path_, "this");
    ASSERT_TRUE(record.ok()) << record.status();
    EXPECT_TRUE(std::filesystem::exists(path_));
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
  Append(one_);
  EXPECT_EQ(Reopen(), one_);
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(MergeRecordTest, Open_OtherFingerprint_BeginsAnew) {
  Append(one_);
  EXPECT_EQ(Reopen("other"), Merges{});
  EXPECT_EQ(Reopen(), Merges{});  // what was there is gone
}

TEST_F(MergeRecordTest, Open_CutOffAnywhere_HasTheWholePartsAndGoesOn) {
  Append(one_);
  const size_t first_part = Content().size();
  Append(two_);
  const std::string whole = Content();
  for (size_t length = 0; length < whole.size(); ++length) {
    Write(whole.substr(0, length));
    EXPECT_EQ(Reopen(), length < first_part ? Merges{} : one_) << length;
    Append(two_);
    EXPECT_EQ(Reopen().back(), two_.back()) << length;
  }
}

TEST_F(MergeRecordTest, Open_AnyByteChanged_HasNothingThatWasNotWritten) {
  Append(one_);
  Append(two_);
  const std::string whole = Content();
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    Write(changed);
    const Merges found = Reopen();
    EXPECT_TRUE(found.empty() || found == one_) << i;
  }
}

}  // namespace
}  // namespace cairn::corpus
