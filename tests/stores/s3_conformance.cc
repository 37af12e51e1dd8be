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

INSTANTIATE_TEST_SUITE_P(S3, StorageConformance, ::testing::Values(StoreUnderTest{"s3", NewRoot, Open}));

}  // namespace
}  // namespace cairn
