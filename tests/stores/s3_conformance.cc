// The conformance suite over an object store that runs already: test_stores.py starts one. Its root is
// CAIRN_TEST_ROOT, as "s3://bucket/prefix?endpoint=http://localhost:9000".
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/clock.h"
#include "common/base/random_id.h"
#include "common/status/reason.h"
#include "store/s3/s3_storage.h"
#include "tests/stores/storage_conformance.h"

namespace cairn {
namespace {

std::string NewRoot() {
  const std::string root = std::getenv("CAIRN_TEST_ROOT");
  const size_t question = root.find('?');
  return absl::StrCat(root.substr(0, question), "/", RandomToken(6),
                      question == root.npos ? "" : root.substr(question));
}

absl::StatusOr<std::unique_ptr<Storage>> Open(const std::string& root) {
  S3Storage::Options options;
  options.wire.silence = absl::Seconds(2);
  return S3Storage::Open(root, /*create=*/true, Clock::Real(), options);
}

TEST(S3StorageTest, TakeRoot_WithinAnotherRoot_IsRefused) {
  const std::string root = NewRoot();
  const auto outer = Open(root);
  ASSERT_TRUE(outer.ok()) << outer.status();
  const auto lock = (*outer)->TakeRoot();
  ASSERT_TRUE(lock.ok()) << lock.status();
  const auto inner = Open(absl::StrCat(root.substr(0, root.find('?')), "/team/run", root.substr(root.find('?'))));
  ASSERT_TRUE(inner.ok()) << inner.status();
  EXPECT_TRUE(HasReason((*inner)->TakeRoot().status(), Reason::kBadRequest));
}

TEST(S3StorageTest, TakeRoot_AroundAnotherRoot_IsRefusedAndChangesNothing) {
  const std::string root = NewRoot();
  const auto inner = Open(absl::StrCat(root.substr(0, root.find('?')), "/team/run", root.substr(root.find('?'))));
  ASSERT_TRUE(inner.ok()) << inner.status();
  ASSERT_TRUE((*inner)->TakeRoot().ok());
  const auto outer = Open(root);
  ASSERT_TRUE(outer.ok()) << outer.status();
  const absl::Status refused = (*outer)->TakeRoot().status();
  EXPECT_TRUE(HasReason(refused, Reason::kBadRequest)) << refused;
  EXPECT_FALSE((*outer)->Exists(".cairn"));
  EXPECT_TRUE((*inner)->TakeRoot().ok()) << "it can still be served";
}

TEST(S3StorageTest, TakeRoot_TheHolderLostItsEpoch_ItsCheckSaysSo) {
  const std::string root = NewRoot();
  const auto storage = Open(root);
  ASSERT_TRUE(storage.ok()) << storage.status();
  const auto first = (*storage)->TakeRoot();
  ASSERT_TRUE(first.ok()) << first.status();
  // As if its lease had grown old.
  ASSERT_TRUE(
      (*storage)
          ->PutReplacing(absl::StrFormat(".cairn/epochs/%020u", (*first)->epoch()), "epoch/2 1 1 gone given-back\n")
          .ok());
  const auto second = (*storage)->TakeRoot();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(HasReason((*first)->Check(), Reason::kRootInUse));
  EXPECT_TRUE((*second)->Check().ok());
}

// Opens a storage that makes uploads.
std::unique_ptr<S3Storage> OpenS3() {
  auto storage = S3Storage::Open(NewRoot(), /*create=*/true, Clock::Real());
  EXPECT_TRUE(storage.ok()) << storage.status();
  return *std::move(storage);
}

TEST(S3UploadTest, Upload_PartsInAnyOrder_ReplaceTheObjectAtOnce) {
  const auto storage = OpenS3();
  ASSERT_TRUE(storage->PutReplacing("object", "old").ok());
  const auto upload = *storage->NewUpload("object");
  const std::string first(upload->PartBytes(1), 'a');
  ASSERT_TRUE(upload->Send(2, "end").ok());
  ASSERT_TRUE(upload->Send(1, first).ok());
  EXPECT_EQ(*storage->Read("object", 100), "old") << "nothing is seen before the end";
  ASSERT_TRUE(upload->Finish().ok());
  EXPECT_EQ(*storage->Read("object", 100 << 20), first + "end");
  EXPECT_TRUE(upload->Abort().ok());
  EXPECT_TRUE(storage->Exists("object")) << "what is finished stays";
}

TEST(S3UploadTest, Upload_WithoutParts_IsAnEmptyObject) {
  const auto storage = OpenS3();
  const auto upload = *storage->NewUpload("object");
  ASSERT_TRUE(upload->Begin().ok());
  ASSERT_TRUE(upload->Finish().ok());
  EXPECT_EQ(*storage->Read("object", 100), "");
  EXPECT_EQ(storage->Facts().unfinished_uploads->count, 0u);
}

TEST(S3UploadTest, Abort_LeavesNothingOfTheNewObject) {
  const auto storage = OpenS3();
  ASSERT_TRUE(storage->PutReplacing("object", "old").ok());
  const auto upload = *storage->NewUpload("object");
  ASSERT_TRUE(upload->Send(1, "new").ok());
  ASSERT_TRUE(upload->Abort().ok());
  EXPECT_EQ(*storage->Read("object", 100), "old");
  EXPECT_EQ(storage->Facts().unfinished_uploads->count, 0u);
}

TEST(S3UploadTest, PartBytes_GrowUntilNoPartIsLeft) {
  const auto storage = OpenS3();
  const auto upload = *storage->NewUpload("object");
  EXPECT_EQ(upload->PartBytes(1), uint64_t{8} << 20);
  EXPECT_EQ(upload->PartBytes(1000), uint64_t{8} << 20);
  EXPECT_EQ(upload->PartBytes(1001), uint64_t{16} << 20);
  EXPECT_EQ(upload->PartBytes(10'000), uint64_t{128} << 20);
  EXPECT_EQ(upload->PartBytes(10'001), 0u);
}

INSTANTIATE_TEST_SUITE_P(S3, StorageConformance, ::testing::Values(StoreUnderTest{"s3", NewRoot, Open}));

}  // namespace
}  // namespace cairn
