// Writes that bypass the page cache (O_DIRECT), where the file system supports it.
#ifndef CAIRN_COMMON_FILE_DIRECT_IO_H_
#define CAIRN_COMMON_FILE_DIRECT_IO_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cairn {

// Makes all later writes to an open file bypass the page cache, and returns whether the file system supports it. Memory
// addresses, sizes and file offsets of these writes must be multiples of kIoAlignment. The call overwrites the file's
// first block as a test, because some file systems accept the flag and then refuse the write.
bool BeginDirectIo(int fd);

// Makes writes go through the page cache again. Returns the errno, or 0.
int EndDirectIo(int fd);

// Tracks where a write continues after the system has written only a part of its bytes.
class ShortWrites {
 public:
  explicit ShortWrites(uint64_t size) : size_(size) {}

  // Returns how many bytes are done: the next write begins behind them. A direct write must begin at a block boundary,
  // so a block that was written only in part is written again.
  uint64_t done() const { return done_; }
  bool finished() const { return done_ == size_; }
  // Records that the last write wrote `wrote` bytes. Returns false if this write and the one before it made no
  // progress: then the storage is full, although it reported no error.
  bool Took(uint64_t wrote, bool direct);

 private:
  const uint64_t size_;
  uint64_t done_ = 0;
  bool stuck_ = false;  // the last write brought no progress
};

// Does the same as WriteFullyAt of full_transfer.h, but after a short direct write it continues at a block boundary.
int WriteBlocksAt(int fd, std::string_view bytes, uint64_t offset);

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_DIRECT_IO_H_
