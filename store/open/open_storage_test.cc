#include "store/open/open_storage.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

TEST(OpenStorageTest, OpenStorage_ADirectory_IsMadeOnlyIfAsked) {
  const std::string root = absl::StrCat(::testing::TempDir(), "/root-", RandomToken(6));
  EXPECT_TRUE(HasReason(OpenStorage(root, false).status(), Reason::kRootMissing));
  const auto storage = OpenStorage(root, true);
  ASSERT_TRUE(storage.ok()) << storage.status();
  EXPECT_EQ((*storage)->root(), root);
  EXPECT_TRUE(OpenStorageOfJob(root, "demo").ok());
}

TEST(OpenStorageTest, OpenStorage_AKindOfStoreThatIsNotKnown_IsRefusedByName) {
  const auto storage = OpenStorage("az://models/run", true);
  EXPECT_TRUE(HasReason(storage.status(), Reason::kUnsupported)) << storage.status();
  for (const char* root : {"s3://models/run", "gs://models/run", "az://models/run"})
    EXPECT_FALSE(IsDirectoryRoot(root));
  EXPECT_TRUE(IsDirectoryRoot("/s3://x"));
}

}  // namespace
}  // namespace cairn
