#include "coordinator/server/plan_store.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/file/posix.h"

namespace cairn {
namespace {

TEST(PlanStoreTest, Persist_ManyPlans_AreBoundedWhileTheCoordinatorRuns) {
  std::string root = testing::TempDir() + "/plans-XXXXXX";
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  const auto storage = *PosixStorage::Open(root, false);
  LayoutStore layouts(1 << 20);
  PlanStore plans(*storage, layouts, SaveOptions());
  ASSERT_TRUE(plans.Recover().ok());
  const std::string shared = Digest("shared");
  ASSERT_TRUE(layouts.Put(shared, "shared").ok());
  std::string newest;
  for (int i = 0; i < 100; ++i) {
    const std::string bytes = absl::StrCat("layout ", i);
    newest = Digest(bytes);
    ASSERT_TRUE(layouts.Put(newest, bytes).ok());
    ASSERT_TRUE(plans.Persist(Digest(absl::StrCat("plan ", i)), {shared, newest}, {"", ""}).ok());
    layouts.Drop(newest);
    const std::filesystem::directory_iterator files(root + "/.cairn/plans");
    ASSERT_LE(std::distance(begin(files), end(files)), 2 * 16 + 1);
  }
  // What an older plan shares with a newer one stays; a coordinator that starts finds the newest.
  LayoutStore found(1 << 20);
  PlanStore next(*storage, found, SaveOptions());
  const auto recovered = next.Recover();
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  EXPECT_NE(found.Get(shared), nullptr);
  EXPECT_NE(found.Get(newest), nullptr);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace cairn
