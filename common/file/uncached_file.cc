#include "common/file/uncached_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/file/errno_error.h"
#include "common/file/full_transfer.h"
#include "common/file/retry.h"
#include "common/resources/aligned_buffer.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr size_t kPart = size_t{1} << 20;

// Reads all of a file with O_DIRECT. Returns the errno, or 0; EINVAL where the file system refuses such reads.
int ReadDirect(int fd, uint64_t size, std::string& bytes) {
  AlignedBuffer buffer(kPart);
  bytes.reserve(size);
  while (bytes.size() < size) {
    const ssize_t got = pread(fd, buffer.data(), kPart, static_cast<off_t>(bytes.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) break;  // the file became shorter meanwhile
    bytes.append(buffer.data(), std::min<size_t>(static_cast<size_t>(got), size - bytes.size()));
    if (bytes.size() < size && bytes.size() % kIoAlignment != 0) return EINVAL;  // the next read must begin a block
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::string> ReadUncached(PosixStorage& storage, std::string_view path, uint64_t max_bytes) {
  const std::string file = absl::StrCat(storage.root(), "/", std::string(path));
  const auto direct = storage.OpenFile(path, O_RDONLY | O_NONBLOCK | O_DIRECT);
  struct stat info;
  if (direct.ok() && StatOf(direct->get(), info) == 0 && S_ISREG(info.st_mode) &&
      static_cast<uint64_t>(info.st_size) <= max_bytes) {
    std::string bytes;
    int error = 0;
    CAIRN_RETURN_IF_ERROR(WithMemory(absl::StrCat("to read the ", info.st_size, " bytes of ", file), [&] {
      error = ReadDirect(direct->get(), static_cast<uint64_t>(info.st_size), bytes);
      return absl::OkStatus();
    }));
    if (error == 0) return bytes;
    if (error != EINVAL) return ErrnoError(error, "read", file);
  }
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd fd, storage.OpenFile(path, O_RDONLY | O_NONBLOCK));
  (void)posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  return ReadWhole(fd.get(), file, max_bytes);
}

absl::Status GaveOtherBytes(const std::string& file, std::string_view question) {
  return MakeError(
      Reason::kStorageError,
      absl::StrCat(file, " gave other bytes when it was read again: nobody can say ", std::string(question)),
      {{"file", file}});
}

}  // namespace cairn
