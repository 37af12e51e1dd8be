#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "store/posix/posix_storage.h"
#include "tests/stores/storage_conformance.h"

namespace cairn {
namespace {

INSTANTIATE_TEST_SUITE_P(Posix, StorageConformance,
                         ::testing::Values(StoreUnderTest{
                             "posix", [] { return absl::StrCat(::testing::TempDir(), "/root-", RandomToken(6)); },
                             [](const std::string& root) -> absl::StatusOr<std::unique_ptr<Storage>> {
                               return PosixStorage::Open(root, /*create=*/true);
                             }}));

}  // namespace
}  // namespace cairn
