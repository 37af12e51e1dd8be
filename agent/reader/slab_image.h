// The files of an earlier save that are still in this agent's slab. A load copies them from here instead of reading
// storage. A new save may take the slab at any time (GiveUp).
#ifndef CAIRN_AGENT_READER_SLAB_IMAGE_H_
#define CAIRN_AGENT_READER_SLAB_IMAGE_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "agent/session/kept_save.h"
#include "agent/staging/shared_memory.h"
#include "common/base/mutex.h"
#include "common/file/unique_fd.h"

namespace cairn {

// Thread-safe.
class SlabImage {
 public:
  SlabImage(std::shared_ptr<SharedMemory> slab, KeptSavePtr kept) : kept_(std::move(kept)), slab_(std::move(slab)) {}

  const KeptSave& kept() const { return *kept_; }
  // Copies [offset, offset + bytes) of the slab. Returns false and copies nothing after GiveUp, or if the range is
  // outside of the slab. Callers should copy in small parts, because GiveUp waits for a running copy.
  bool Copy(uint64_t offset, uint64_t bytes, char* to);
  // Returns a descriptor by which another process reads the slab. After GiveUp it reads what is written there then.
  // UNAVAILABLE (STORAGE_ERROR): the slab was given up, or the process has no descriptor left.
  absl::StatusOr<UniqueFd> Share();
  // Makes later copies fail, waits for running ones, and releases the slab's memory.
  void GiveUp();

 private:
  const KeptSavePtr kept_;
  Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<SharedMemory> slab_ ABSL_GUARDED_BY(mutex_);  // null when it was given up
  int copying_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_READER_SLAB_IMAGE_H_
