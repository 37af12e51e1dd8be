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
  for (uint64_t done = 0; done < bytes.size();) {
    const ssize_t wrote = pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return wrote == 0 ? ENOSPC : errno;
    done += static_cast<uint64_t>(wrote);
    if (done < bytes.size()) done = done / kIoAlignment * kIoAlignment;
  }
  return 0;
}

}  // namespace cairn
