// Writes past the page cache (O_DIRECT), where a file system has that.
#ifndef CAIRN_COMMON_FILE_DIRECT_IO_H_
#define CAIRN_COMMON_FILE_DIRECT_IO_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cairn {

// Makes all writes to an open file go past the page cache from now on, and returns whether they do. What is written
// then has addresses, sizes and offsets that are multiples of kIoAlignment. The file's first block is overwritten,
// because some file systems take the flag and refuse the write.
bool BeginDirectIo(int fd);

// Makes writes go through the page cache again. Returns the errno, or 0.
int EndDirectIo(int fd);

// Says where a write goes on after the system took only some of its bytes.
class ShortWrites {
 public:
  explicit ShortWrites(uint64_t size) : size_(size) {}

  // How many bytes are written for good: the next write begins behind them. Direct writes go on at a whole block, so
  // what the system took of the block behind it is written again.
  uint64_t done() const { return done_; }
  bool finished() const { return done_ == size_; }
  // Takes in that a write of the rest took `wrote` bytes. Returns false if it brought no progress, and the one before
  // it did not either: the storage has no room, though it does not say so.
  bool Took(uint64_t wrote, bool direct);

 private:
  const uint64_t size_;
  uint64_t done_ = 0;
  bool stuck_ = false;  // the last write brought no progress
};

// As WriteFullyAt of full_transfer.h; but after a short write to a file with direct I/O it goes on at a whole block.
int WriteBlocksAt(int fd, std::string_view bytes, uint64_t offset);

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_DIRECT_IO_H_
