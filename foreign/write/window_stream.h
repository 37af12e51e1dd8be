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

// However little memory is allowed, a window has this much, if a file is as large.
inline constexpr uint64_t kSmallestWindowBytes = uint64_t{16} << 20;

// Holds all that the size of the windows follows from.
struct WindowSizes {
  uint64_t memory_bytes = 0;  // for everything
  uint64_t reader_bytes = 0;  // of these, what the reader takes
  uint64_t largest_part = 0;  // should have room in a window
  uint64_t largest_file = 0;  // no window is larger
};

// Returns how large each of the two windows is: at least 4 KiB.
uint64_t WindowBytes(const WindowSizes& sizes);

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

  // The active window: filled() bytes at data() are the file's from origin() on, and room() more may follow.
  char* data() { return windows_[active_].data(); }
  uint64_t origin() const { return origin_; }
  uint64_t filled() const { return filled_; }
  uint64_t room() const { return windows_[active_].size() - filled_; }
  // Takes `bytes` more bytes as filled, which stand at data() + filled() when the next Flush or End is called.
  void Grow(uint64_t bytes) { filled_ += bytes; }

  // Has the window written while the next one is filled. Afterwards room() is at least the size of a window. Fails as
  // OutputDirectory::Write does, for what was given to be written by this call or an earlier one.
  absl::Status Flush();

  // Writes the rest of the file, and returns when all of it is written. Fails as Flush does.
  absl::Status End();

  // Returns the CRC32C of the file that has ended: of what was to be written, whatever the disk made of it.
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
  uint32_t crc32c_ = 0;                              // of what was written; the task's while one is under way
  BackgroundTask background_{"to write an export"};  // destroyed first: its task uses the rest
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_WINDOW_STREAM_H_
