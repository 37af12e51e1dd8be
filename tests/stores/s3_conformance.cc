// The conformance suite over an object store that runs already: test_stores.py starts one. Its root is
// CAIRN_TEST_ROOT, as "s3://bucket/prefix?endpoint=http://localhost:9000".
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/random_id.h"
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

INSTANTIATE_TEST_SUITE_P(S3, StorageConformance, ::testing::Values(StoreUnderTest{"s3", NewRoot, Open}));

}  // namespace
}  // namespace cairn
