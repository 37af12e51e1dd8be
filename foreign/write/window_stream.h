// Writes the files of an export through two windows of memory: while one is written, the next one is filled.
#ifndef CAIRN_FOREIGN_WRITE_WINDOW_STREAM_H_
#define CAIRN_FOREIGN_WRITE_WINDOW_STREAM_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "common/resources/aligned_buffer.h"
#include "foreign/tensors/background_task.h"
#include "foreign/write/export_output.h"

namespace cairn {

// Writes one file after the other. Not thread-safe.
class WindowStream {
 public:
  // Takes the memory of both windows, each of which has `step` more bytes. `step` is that of the output.
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system refused it.
  absl::Status Allocate(uint64_t window_bytes, uint64_t step);

  // Returns how many bytes fit into a window at least.
  uint64_t window_bytes() const { return windows_[0].size() - step_; }

  // Begins a new file, all of whose bytes are written in their order. The caller finishes it after End. After an
  // error `file` must live until Wait has returned.
  void Begin(OutputFile& file);

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
  // size of a window. Fails as OutputFile::Write does, also for writes of earlier calls.
  absl::Status Flush();

  // Writes the rest of the file, and returns when all of it is written. Fails as Flush does.
  absl::Status End();

  // Returns when nothing is being written any more: an error of what was, else OK.
  absl::Status Wait() { return background_.Wait(); }

  // Returns the CRC32C of the file that has ended, computed from the bytes in memory and not from the disk.
  uint32_t crc32c() const { return crc32c_; }

 private:
  absl::Status WritePieces(uint64_t offset, const char* bytes, uint64_t size);

  AlignedBuffer windows_[2];
  size_t active_ = 0;
  OutputFile* file_ = nullptr;
  uint64_t step_ = 0;
  uint64_t origin_ = 0;  // a multiple of step_
  uint64_t filled_ = 0;
  // The CRC32C of the bytes written so far. While a task runs, only the task uses it.
  uint32_t crc32c_ = 0;
  BackgroundTask background_{"to write an export"};  // destroyed first: its task uses the rest
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_WINDOW_STREAM_H_
