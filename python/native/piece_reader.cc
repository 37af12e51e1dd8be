#include "python/native/piece_reader.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "common/base/crc32c.h"
#include "common/tensor/parallel_copy.h"

namespace {

// What is read is summed while it is still in a core's second-level cache.
constexpr int64_t kCachedPartBytes = int64_t{256} << 10;
constexpr int64_t kEndOfFile = -1;

bool Inside(const CairnPiece& piece) {
  return piece.bytes >= 0 && piece.offset >= 0 && piece.target_offset >= 0 &&
         piece.target_offset <= piece.target_bytes && piece.bytes <= piece.target_bytes - piece.target_offset;
}

// Returns 0, or why the bytes could not be read.
int64_t ReadFully(const CairnPiece& piece, char* to, int64_t bytes, int64_t offset) {
  while (bytes > 0) {
    const iovec part = {to, static_cast<size_t>(bytes)};
    const ssize_t got =
        preadv2(static_cast<int>(piece.descriptor), &part, 1, offset, piece.may_wait != 0 ? RWF_NOWAIT : 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) return kEndOfFile;
    to += got;
    bytes -= got;
    offset += got;
  }
  return 0;
}

int64_t ReadPiece(const CairnPiece& piece, uint32_t& checksum) {
  char* const target = static_cast<char*>(piece.target) + piece.target_offset;
  checksum = 0;
  for (int64_t at = 0; at < piece.bytes; at += kCachedPartBytes) {
    const int64_t part = std::min(kCachedPartBytes, piece.bytes - at);
    if (const int64_t error = ReadFully(piece, target + at, part, piece.offset + at); error != 0) return error;
    checksum = cairn::ExtendCrc32c(checksum, target + at, static_cast<size_t>(part));
  }
  return 0;
}

}  // namespace

int64_t cairn_read_pieces(const CairnPiece* pieces, int64_t count, int64_t threads, uint32_t* checksums,
                          int64_t* error) {
  int64_t total = 0;
  for (int64_t i = 0; i < count; ++i) {
    *error = 0;
    if (!Inside(pieces[i])) return i;
    total += pieces[i].bytes;
  }
  std::atomic<int64_t> failed = -1;
  std::atomic<int64_t> why = 0;
  cairn::InParallel(count, cairn::UsefulThreads(threads, total), [&](int64_t i) {
    if (failed >= 0) return;
    const int64_t result = ReadPiece(pieces[i], checksums[i]);
    int64_t none = -1;
    if (result != 0 && failed.compare_exchange_strong(none, i)) why = result;
  });
  *error = why;
  return failed;
}
