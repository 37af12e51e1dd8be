// What every implementation of Storage must do. A test that includes this names the storages by
// INSTANTIATE_TEST_SUITE_P(Posix, StorageConformance, Values(StoreUnderTest{...})).
#ifndef CAIRN_TESTS_STORES_STORAGE_CONFORMANCE_H_
#define CAIRN_TESTS_STORES_STORAGE_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "store/storage/storage.h"

namespace cairn {

struct StoreUnderTest {
  std::string name;
  // Returns a root that nobody has used. Opened again under the same name, it is the same root.
  std::function<std::string()> new_root;
  std::function<absl::StatusOr<std::unique_ptr<Storage>>(const std::string& root)> open;
};

class StorageConformance : public ::testing::TestWithParam<StoreUnderTest> {
 protected:
  StorageConformance() : root_(GetParam().new_root()), storage_(Open()) {}

  std::unique_ptr<Storage> Open() {
    auto storage = GetParam().open(root_);
    EXPECT_TRUE(storage.ok()) << storage.status();
    return *std::move(storage);
  }

  const std::string root_;
  const std::unique_ptr<Storage> storage_;
};

}  // namespace cairn

#endif  // CAIRN_TESTS_STORES_STORAGE_CONFORMANCE_H_
