// A root's lock that a test holds, and takes away.
#ifndef CAIRN_STORE_STORAGE_TESTING_FAKE_ROOT_LOCK_H_
#define CAIRN_STORE_STORAGE_TESTING_FAKE_ROOT_LOCK_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "store/storage/root_lock.h"

namespace cairn {

class FakeRootLock : public RootLock {
 public:
  uint64_t epoch() const override { return 1; }
  absl::Time began() const override { return absl::InfinitePast(); }
  absl::Status RaiseFormat() const override {
    ++raised;
    return raise;
  }
  absl::Status TellAddress(const std::string&) const override { return absl::OkStatus(); }

  absl::Status held;                   // what Check says
  absl::Status raise;                  // what RaiseFormat says
  mutable int raised = 0;              // how often that was asked for
  std::function<void()> before_check;  // called, if it is set, before Check says it

 private:
  absl::Status Look() const override {
    if (before_check) before_check();
    return held;
  }
};

}  // namespace cairn

#endif  // CAIRN_STORE_STORAGE_TESTING_FAKE_ROOT_LOCK_H_
