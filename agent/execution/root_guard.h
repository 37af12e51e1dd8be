// Checks whether this agent's root is the coordinator's storage. The root's path is looked at before everything that is
// written or read below it: a file system that was unmounted, or mounted late, leaves a directory that looks as good.
#ifndef CAIRN_AGENT_EXECUTION_ROOT_GUARD_H_
#define CAIRN_AGENT_EXECUTION_ROOT_GUARD_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "store/storage/storage.h"

namespace cairn {

// Thread-safe; methods block on storage.
class RootGuard {
 public:
  // `register_again` makes the agent register, and so show its proof. `storage` must outlive it.
  RootGuard(Storage& storage, std::function<void()> register_again)
      : storage_(storage), register_again_(std::move(register_again)) {}

  // For a registration: what stands below the root now, and nothing if it cannot be read.
  std::string ReadProof();
  // The coordinator has taken this proof.
  void Accepted(std::string proof);

  // Is called before a write or a load. OK: the root is the directory that was last proven, or another one that holds
  // the same proof.
  // FAILED_PRECONDITION (ROOT_MISMATCH): it holds another one, or none; the agent registers again. NOT_FOUND
  // (ROOT_MISSING), and others of storage.
  absl::Status Check();

 private:
  Storage& storage_;
  const std::function<void()> register_again_;
  Mutex mutex_;
  // The coordinator took this proof last.
  std::string proof_ ABSL_GUARDED_BY(mutex_);
  // Count how often another directory had come to stand at the root when a proof was last read there, and when one was
  // last found good.
  uint64_t read_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t proven_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_EXECUTION_ROOT_GUARD_H_
