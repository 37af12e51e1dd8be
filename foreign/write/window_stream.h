// Writes the files of an export through two windows of memory: while one is written, the next one is filled.
#ifndef CAIRN_FOREIGN_WRITE_WINDOW_STREAM_H_
#define CAIRN_FOREIGN_WRITE_WINDOW_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/resources/aligned_buffer.h"
#include "foreign/tensors/background_task.h"
#include "foreign/write/output_directory.h"

namespace cairn {

// Writes one file after the other. Whole blocks are written past the page cache where the file system lets them. Not
// thread-safe.
class WindowStream {
 public:
  // `output` must outlive it.
  explicit WindowStream(const OutputDirectory& output) : output_(output) {}

  // Takes the memory of both windows. RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system refused it.
  absl::Status Allocate(uint64_t window_bytes);

  // Begins a new file of `bytes` bytes, all of which are written in their order.
  void Begin(int fd, std::string name, uint64_t bytes);

  // The active window holds filled() bytes at data(), which belong at origin() of the file. room() more bytes fit into
  // it.
  char* data() { return windows_[active_].data(); }
  uint64_t origin() const { return origin_; }
  uint64_t filled() const { return filled_; }
  uint64_t room() const { return windows_[active_].size() - filled_; }
  // Counts `bytes` more bytes as filled. The caller must have written them, at data() + filled() of before the call,
  // when it calls Flush or End.
  void Grow(uint64_t bytes) { filled_ += bytes; }

  // Begins to write the active window to the file, and makes the other window active. Afterwards room() is at least the
  // size of a window. Fails as OutputDirectory::Write does, also for writes of earlier calls.
  absl::Status Flush();

  // Writes the rest of the file, and returns when all of it is written. Fails as Flush does.
  absl::Status End();

  // Returns the CRC32C of the file that has ended, computed from the bytes in memory and not from the disk.
  uint32_t crc32c() const { return crc32c_; }

 private:
  absl::Status WritePieces(uint64_t offset, const char* bytes, uint64_t size);

  const OutputDirectory& output_;
  AlignedBuffer windows_[2];
  size_t active_ = 0;
  int fd_ = -1;
  std::string name_;
  uint64_t origin_ = 0;  // a multiple of kIoAlignment
  uint64_t filled_ = 0;
  // The CRC32C of the bytes written so far. While a task runs, only the task uses it.
  uint32_t crc32c_ = 0;
  BackgroundTask background_{"to write an export"};  // destroyed first: its task uses the rest
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_WINDOW_STREAM_H_
