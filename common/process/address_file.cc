#include "common/process/address_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/file/errno_error.h"
#include "common/file/full_transfer.h"
#include "common/file/posix.h"

namespace cairn {

absl::Status WriteAddressFile(const std::string& path, const std::string& address) {
  const std::string temporary = absl::StrCat(path, ".", RandomToken(4));
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.valid()) return ErrnoError(errno, "create", temporary);
  int error = WriteFully(fd.get(), address + "\n");
  if (error == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    unlink(temporary.c_str());
    return ErrnoError(error, "write", path);
  }
  return absl::OkStatus();
}

}  // namespace cairn
