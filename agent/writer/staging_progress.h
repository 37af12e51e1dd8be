// How far a trainer has staged what is being written: files are written while it still copies.
#ifndef CAIRN_AGENT_WRITER_STAGING_PROGRESS_H_
#define CAIRN_AGENT_WRITER_STAGING_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace cairn {

// Thread-safe.
class StagingProgress {
 public:
  // What Await takes for "all of the slab, and what the trainer says of it".
  static constexpr uint64_t kAll = UINT64_MAX;

  // All is staged. `object_bytes`: the true lengths of the layout's objects, in the layout's order.
  explicit StagingProgress(std::vector<uint64_t> object_bytes) { End(std::move(object_bytes)); }
  // Nothing is staged yet. `staged_bytes` returns the offset in the slab below which all is; it never falls, and may be
  // called by several threads. It need not ever rise: End is what counts.
  explicit StagingProgress(std::function<uint64_t()> staged_bytes) : staged_bytes_(std::move(staged_bytes)) {}

  // All is staged now.
  void End(std::vector<uint64_t> object_bytes);

  // Waits until all of the slab below `end` is staged, for a few moments at most. Returns whether it is.
  bool Await(uint64_t end);

  // Only after Await(kAll) has returned true.
  const std::vector<uint64_t>& object_bytes() const { return object_bytes_; }

 private:
  const std::function<uint64_t()> staged_bytes_;
  Mutex mutex_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<uint64_t> object_bytes_;  // does not change once ended_ is true
};

}  // namespace cairn

#endif  // CAIRN_AGENT_WRITER_STAGING_PROGRESS_H_
