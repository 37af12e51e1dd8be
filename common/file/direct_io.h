// Writes past the page cache (O_DIRECT), where a file system has that.
#ifndef CAIRN_COMMON_FILE_DIRECT_IO_H_
#define CAIRN_COMMON_FILE_DIRECT_IO_H_

#include <cstdint>
#include <string_view>

namespace cairn {

// Makes all writes to an open file go past the page cache from now on, and returns whether they do. What is written
// then has addresses, sizes and offsets that are multiples of kIoAlignment. The file's first block is overwritten,
// because some file systems take the flag and refuse the write.
bool BeginDirectIo(int fd);

// Makes writes go through the page cache again. Returns the errno, or 0.
int EndDirectIo(int fd);

// As WriteFullyAt of full_transfer.h; but after a short write it goes on at a whole block, as direct writes must.
int WriteBlocksAt(int fd, std::string_view bytes, uint64_t offset);

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_DIRECT_IO_H_
