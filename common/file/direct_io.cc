#include "common/file/direct_io.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "common/resources/aligned_buffer.h"

namespace cairn {

bool BeginDirectIo(int fd) {
  if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_DIRECT) != 0) return false;
  const AlignedBuffer zeros(kIoAlignment);
  if (WriteBlocksAt(fd, {zeros.data(), kIoAlignment}, 0) != EINVAL) return true;
  EndDirectIo(fd);
  return false;
}

int EndDirectIo(int fd) { return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_DIRECT) == 0 ? 0 : errno; }

int WriteBlocksAt(int fd, std::string_view bytes, uint64_t offset) {
  ShortWrites progress(bytes.size());
  while (!progress.finished()) {
    const uint64_t done = progress.done();
    const ssize_t wrote = pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno;
    const bool whole = static_cast<uint64_t>(wrote) == bytes.size() - done;
    if (!progress.Took(static_cast<uint64_t>(wrote), !whole && (fcntl(fd, F_GETFL) & O_DIRECT) != 0)) return ENOSPC;
  }
  return 0;
}

bool ShortWrites::Took(uint64_t wrote, bool direct) {
  const uint64_t before = done_;
  done_ += wrote;
  if (done_ < size_ && direct) done_ = done_ / kIoAlignment * kIoAlignment;
  const bool stuck_before = stuck_;
  stuck_ = done_ == before && !finished();
  return !(stuck_ && stuck_before);
}

}  // namespace cairn
