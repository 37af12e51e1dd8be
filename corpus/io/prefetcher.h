// Reads (and decompresses) the next block of a source in a thread of its own while its user works on the block before.
// If the system refuses the thread, it reads a block when the user asks for it.
#ifndef CAIRN_CORPUS_IO_PREFETCHER_H_
#define CAIRN_CORPUS_IO_PREFETCHER_H_

#include <array>
#include <memory>
#include <string_view>
#include <thread>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "corpus/io/byte_source.h"

namespace cairn::corpus {

// Only one thread may use it at a time.
class Prefetcher {
 public:
  // `memory` holds two blocks: it must be page-aligned, have 2 * block_bytes and live as long as this object.
  // block_bytes must be a multiple of kIoAlignment.
  Prefetcher(char* memory, size_t block_bytes);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Begins to read `source`, and drops what was left of the source before.
  void Start(std::unique_ptr<ByteSource> source);
  // Returns the next block, which is valid until the next call; empty at the end. Fails as the source.
  absl::StatusOr<std::string_view> Next();
  // Ends the reading of the source. Returns whether it was read around the page cache.
  bool Finish();

 private:
  enum class SlotState { kFree, kFull, kInUse };
  struct Slot {
    char* data = nullptr;
    SlotState state = SlotState::kFree;
    absl::StatusOr<size_t> result = size_t{0};
  };

  void Loop();

  const size_t block_bytes_;
  Mutex mutex_;
  CondVar changed_;
  std::array<Slot, 2> slots_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ByteSource> source_ ABSL_GUARDED_BY(mutex_);
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;  // the thread is inside a read, without the lock
  bool ended_ ABSL_GUARDED_BY(mutex_) = true;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  size_t next_fill_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t next_use_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_PREFETCHER_H_
