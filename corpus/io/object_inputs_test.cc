#include "corpus/io/object_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/testing/memory_stores.h"

namespace cairn::corpus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ObjectInputsTest : public testing::Test {
 protected:
  ObjectInputsTest() {
    for (const char* name : {"raw/b.jsonl", "raw/a.jsonl.zst", "raw/a.txt", "raw/deep/c.jsonl", "raw/.hidden/x.jsonl",
                             "raw/.y.jsonl", "raw/deep/.z.jsonl", "raw2/d.jsonl", "raw/e[1].jsonl", "top.jsonl"}) {
      stores_.Put(std::string("s3://bucket/") + name, name);
    }
  }
  std::vector<std::string> Find(const std::string& argument) {
    const auto found = FindObjects(stores_, argument);
    EXPECT_TRUE(found.ok()) << argument << found.status();
    return found.value_or(std::vector<std::string>());
  }

  MemoryStores stores_;
};

TEST_F(ObjectInputsTest, Find_AnObject_IsItself) {
  EXPECT_THAT(Find("s3://bucket/raw/b.jsonl"), ElementsAre("s3://bucket/raw/b.jsonl"));
  EXPECT_THAT(Find("s3://bucket/top.jsonl"), ElementsAre("s3://bucket/top.jsonl"));
}

TEST_F(ObjectInputsTest, Find_ADirectory_IsAllBelowItExceptHidden) {
  for (const char* directory : {"s3://bucket/raw", "s3://bucket/raw/"}) {
    EXPECT_THAT(Find(directory),
                ElementsAre("s3://bucket/raw/a.jsonl.zst", "s3://bucket/raw/a.txt", "s3://bucket/raw/b.jsonl",
                            "s3://bucket/raw/deep/c.jsonl", "s3://bucket/raw/e[1].jsonl"));
  }
  EXPECT_EQ(Find("s3://bucket").size(), 7u);
}

TEST_F(ObjectInputsTest, Find_AnObjectThatIsADirectoryToo_ASlashDecides) {
  stores_.Put("s3://bucket/raw", "an object");
  EXPECT_THAT(Find("s3://bucket/raw"), ElementsAre("s3://bucket/raw"));
  EXPECT_EQ(Find("s3://bucket/raw/").size(), 5u);
}

TEST_F(ObjectInputsTest, Find_APattern_IsWhatTheShellWouldMatch) {
  EXPECT_THAT(Find("s3://bucket/raw/*.jsonl*"),
              ElementsAre("s3://bucket/raw/a.jsonl.zst", "s3://bucket/raw/b.jsonl", "s3://bucket/raw/e[1].jsonl"));
  EXPECT_THAT(Find("s3://bucket/*/?.jsonl"), ElementsAre("s3://bucket/raw/b.jsonl", "s3://bucket/raw2/d.jsonl"));
  EXPECT_THAT(Find("s3://bucket/*/deep/*"), ElementsAre("s3://bucket/raw/deep/c.jsonl"));
  EXPECT_THAT(Find("s3://bucket/raw/.*.jsonl"), ElementsAre("s3://bucket/raw/.y.jsonl"));
  EXPECT_THAT(Find("s3://bucket/raw/e[1].jsonl"), ElementsAre("s3://bucket/raw/e[1].jsonl"));
  EXPECT_THAT(Find("s3://bucket/[t]*"), ElementsAre("s3://bucket/top.jsonl"));
}

TEST_F(ObjectInputsTest, Find_Nothing_IsAnErrorThatNamesTheArgument) {
  for (const char* argument :
       {"s3://bucket/none", "s3://bucket/ra", "s3://bucket/raw/*.gz", "s3://bucket/raw/deep/*/x", "s3://empty"}) {
    const absl::Status status = FindObjects(stores_, argument).status();
    EXPECT_TRUE(HasReason(status, Reason::kInputUnreadable)) << argument << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(argument));
    EXPECT_FALSE(NextActionOf(status).empty());
  }
  EXPECT_TRUE(HasReason(FindObjects(stores_, "s3://").status(), Reason::kBadRequest));
}

TEST_F(ObjectInputsTest, Open_AnObjectThatWasListed_MustBeTheSame) {
  Find("s3://bucket/raw/");
  EXPECT_EQ(stores_.Recall("s3://bucket/raw/b.jsonl")->bytes, 11u);
  ASSERT_TRUE(stores_.Open("s3://bucket/raw/b.jsonl").ok());
  stores_.Put("s3://bucket/raw/b.jsonl", "raw/b.jsonl");  // the same bytes, but nobody knows that
  const absl::Status status = stores_.Open("s3://bucket/raw/b.jsonl").status();
  EXPECT_TRUE(HasReason(status, Reason::kInputUnreadable)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("s3://bucket/raw/b.jsonl was written anew"));
  EXPECT_FALSE(FindObjects(stores_, "s3://bucket/raw/b.jsonl").ok());
}

TEST_F(ObjectInputsTest, CheckIsLocal_RefusesAddressesByName) {
  EXPECT_TRUE(CheckIsLocal("--temp-dir", "/tmp", "it is read at random").ok());
  const absl::Status status = CheckIsLocal("--temp-dir", "s3://bucket/tmp", "it is read at random");
  EXPECT_TRUE(HasReason(status, Reason::kUnsupported));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--temp-dir s3://bucket/tmp"));
  EXPECT_THAT(NextActionOf(status), HasSubstr("--temp-dir"));
}

}  // namespace
}  // namespace cairn::corpus
