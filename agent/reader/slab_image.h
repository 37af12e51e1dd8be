// Files that this agent has written and that still stand in its slab, for a load that copies them from there. A save
// takes the slab away from it at any time.
#ifndef CAIRN_AGENT_READER_SLAB_IMAGE_H_
#define CAIRN_AGENT_READER_SLAB_IMAGE_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "agent/session/kept_save.h"
#include "agent/staging/shared_memory.h"
#include "common/base/mutex.h"

namespace cairn {

// Thread-safe.
class SlabImage {
 public:
  SlabImage(std::shared_ptr<SharedMemory> slab, KeptSavePtr kept) : kept_(std::move(kept)), slab_(std::move(slab)) {}

  const KeptSave& kept() const { return *kept_; }
  // Copies [offset, offset + bytes) of the slab. False, and nothing is copied, once it was given up, and for what lies
  // outside of the slab. Who copies much does it in parts, because GiveUp waits for the one under way.
  bool Copy(uint64_t offset, uint64_t bytes, char* to);
  // Returns when nobody copies any more; nobody begins to. Lets the slab's memory go.
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
