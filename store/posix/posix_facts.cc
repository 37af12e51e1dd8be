#include "store/posix/posix_facts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/file/atomic_write.h"
#include "common/resources/aligned_buffer.h"

namespace cairn {
namespace {

// Writes a file, calls `written` for it, and removes it. Returns the errno of what failed; 0 if nothing did.
template <typename Written>
int WithProbeFile(ConfinedDirectory& root, int flags, Written written) {
  const std::string path = absl::StrCat(".cairn/", NewTemporaryName());
  const auto file = root.OpenFile(path, O_RDWR | O_CREAT | O_EXCL | flags, 0600);
  if (!file.ok()) return EINVAL;
  const AlignedBuffer block(kIoAlignment);
  int error = pwrite(file->get(), block.data(), block.size(), 0) == static_cast<ssize_t>(block.size()) ? 0 : errno;
  if (error == 0 && fsync(file->get()) != 0) error = errno;
  written(file->get());
  unlink(absl::StrCat(root.path(), "/", path).c_str());
  return error;
}

}  // namespace

StorageFacts FactsOf(ConfinedDirectory& root) {
  StorageFacts facts;
  struct statvfs space = {};
  if (statvfs(root.path().c_str(), &space) == 0) {
    facts.free = {static_cast<uint64_t>(space.f_bavail) * space.f_frsize, space.f_favail, space.f_files};
  }
  facts.direct_error = WithProbeFile(root, O_DIRECT, [](int) {});
  WithProbeFile(root, 0, [&](int file) {
    struct stat info = {};
    if (fstat(file, &info) == 0) facts.clocks = {absl::TimeFromTimespec(info.st_mtim), Clock::Real().WallNow()};
  });
  return facts;
}

}  // namespace cairn
