#include "common/file/full_transfer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/file/errno_error.h"
#include "common/file/retry.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr size_t kGatheredBytes = size_t{1} << 20;

// write_some(bytes) writes a part from the beginning of `bytes`, as write(2) does.
int WriteAll(std::string_view bytes, auto&& write_some) {
  while (!bytes.empty()) {
    const ssize_t written = write_some(bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written == 0 ? ENOSPC : errno;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

}  // namespace

int WriteFully(int fd, std::string_view bytes) {
  return WriteAll(bytes, [&](std::string_view rest) { return ::write(fd, rest.data(), rest.size()); });
}

int WriteFully(int fd, std::span<const std::string_view> pieces) {
  std::string gathered;
  const auto write_gathered = [&] {
    const int error = WriteFully(fd, gathered);
    gathered.clear();
    return error;
  };
  for (const std::string_view piece : pieces) {
    if (gathered.size() + piece.size() > kGatheredBytes) {
      if (const int error = write_gathered(); error != 0) return error;
    }
    if (piece.size() <= kGatheredBytes && pieces.size() > 1) {
      gathered.append(piece);
    } else if (const int error = WriteFully(fd, piece); error != 0) {
      return error;
    }
  }
  return write_gathered();
}

int WriteFullyAt(int fd, std::string_view bytes, uint64_t offset) {
  const uint64_t end = offset + bytes.size();
  return WriteAll(bytes, [&](std::string_view rest) {
    return ::pwrite(fd, rest.data(), rest.size(), static_cast<off_t>(end - rest.size()));
  });
}

int ReadFullyAt(int fd, void* to, size_t size, uint64_t offset, size_t& got) {
  for (got = 0; got < size;) {
    const ssize_t count = ::pread(fd, static_cast<char*>(to) + got, size - got, static_cast<off_t>(offset + got));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) break;
    got += static_cast<size_t>(count);
  }
  return 0;
}

absl::StatusOr<std::string> ReadWhole(int fd, const std::string& path, uint64_t max_bytes) {
  struct stat info;
  if (StatOf(fd, info) != 0) return ErrnoError(errno, "stat", path);
  if (!S_ISREG(info.st_mode)) return NoRegularFileError(info.st_mode, "read", path);
  if (static_cast<uint64_t>(info.st_size) > max_bytes) {
    return MakeError(Reason::kMessageTooLarge,
                     absl::StrCat(path, " has ", info.st_size, " bytes, at most ", max_bytes, " are read"),
                     {{"file", path}});
  }
  std::string bytes;
  CAIRN_RETURN_IF_ERROR(WithMemory(absl::StrCat("to read the ", info.st_size, " bytes of ", path), [&] {
    bytes.resize(static_cast<size_t>(info.st_size));
    return absl::OkStatus();
  }));
  size_t got = 0;  // less than the size if the file became shorter meanwhile
  if (const int error = ReadFullyAt(fd, bytes.data(), bytes.size(), 0, got); error != 0) {
    return ErrnoError(error, "read", path);
  }
  bytes.resize(got);
  return bytes;
}

}  // namespace cairn
