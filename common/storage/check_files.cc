#include "common/storage/check_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/rpc/reason.h"
#include "common/storage/errno_error.h"

namespace cairn {
namespace {

// A thread costs as much as a few stats of a local disk, and much less than one of a network.
constexpr size_t kFilesPerThread = 64;
constexpr size_t kMaxThreads = 16;

absl::Status CheckFile(int directory, const std::string& path, const FileSize& file) {
  struct stat info;
  int result;
  do {
    result = fstatat(directory, file.name.c_str(), &info, AT_SYMLINK_NOFOLLOW);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return ErrnoError(errno, "stat", path);
  if (S_ISLNK(info.st_mode)) return ErrnoError(ELOOP, "stat", path);
  if (!S_ISREG(info.st_mode)) return ErrnoError(EISDIR, "stat", path);
  if (static_cast<uint64_t>(info.st_size) == file.bytes) return absl::OkStatus();
  return MakeError(Reason::kFileTruncated,
                   absl::StrCat(path, " has ", info.st_size, " bytes and should have ", file.bytes), {{"file", path}});
}

bool IsDamage(const absl::Status& status) {
  return HasReason(status, Reason::kFileMissing) || HasReason(status, Reason::kFileTruncated);
}

}  // namespace

absl::Status CheckFiles(PosixStorage& storage, std::string_view directory, std::span<const FileSize> files) {
  if (files.empty()) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd fd, storage.OpenFile(directory, O_RDONLY | O_DIRECTORY));
  std::vector<absl::Status> found(files.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < files.size(); i = next++) {
      const std::string path = absl::StrCat(storage.root(), "/", std::string(directory), "/", files[i].name);
      found[i] = CheckFile(fd.get(), path, files[i]);
    }
  };
  std::vector<std::thread> threads;
  const size_t helpers = std::min(kMaxThreads, files.size() / kFilesPerThread);
  for (size_t i = 0; i < helpers; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();

  const absl::Status* damage = nullptr;
  size_t damaged = 0;
  for (const absl::Status& status : found) {
    if (status.ok()) continue;
    if (!IsDamage(status)) return status;
    if (damaged++ == 0) damage = &status;
  }
  if (damage == nullptr) return absl::OkStatus();
  if (damaged == 1) return *damage;
  const auto details = MetadataOf(*damage);
  return MakeError(*ReasonOf(*damage),
                   absl::StrCat(damage->message(), "; ", damaged - 1, " more of its ", files.size(),
                                " files are missing or have another length"),
                   ErrorMetadata(details.begin(), details.end()));
}

}  // namespace cairn
