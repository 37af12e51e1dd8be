#include "export/output_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/file/atomic_write.h"
#include "common/file/confined_path.h"
#include "common/file/errno_error.h"
#include "common/file/full_transfer.h"
#include "common/file/posix.h"
#include "common/file/retry.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr std::string_view kTemporaryPrefix = ".tmp-export-";
constexpr size_t kCopiedBytes = size_t{1} << 20;

// A checkpoint of one library beside that of another is read as either, by chance.
bool IsOfACheckpoint(std::string_view name) {
  for (const std::string_view ending :
       {".safetensors", ".safetensors.index.json", ".distcp", ".metadata", ".snapshot_metadata"}) {
    if (name.ends_with(ending)) return true;
  }
  return false;
}

}  // namespace

OutputDirectory::~OutputDirectory() {
  for (const auto& [temporary, name] : files_) unlinkat(fd_.get(), temporary.c_str(), 0);
  for (const std::string& name : published_) unlinkat(fd_.get(), name.c_str(), 0);
  if (made_directory_ && !done_) rmdir(path_.c_str());
}

std::string OutputDirectory::PathOf(const std::string& name) const { return absl::StrCat(path_, "/", name); }

absl::Status OutputDirectory::Open(const std::function<bool(std::string_view name)>& is_output) {
  if (RetryInterrupted([&] { return mkdir(path_.c_str(), 0755); }) == 0) {
    made_directory_ = true;
  } else if (errno == ENOENT) {
    // The parent directory is not made too: otherwise, if a mount were missing, the export would fill the disk below
    // it.
    return MakeError(Reason::kBadRequest, absl::StrCat("the directory above ", path_, " does not exist"),
                     {{"file", path_}, {"next", "Make that directory, or correct --to."}});
  } else if (errno != EEXIST) {
    return ErrnoError(errno, "make", path_);
  }
  fd_ = UniqueFd(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd_.valid()) return ErrnoError(errno, "open", path_);
  CAIRN_RETURN_IF_ERROR(Lock());
  CAIRN_ASSIGN_OR_RETURN(const auto storage, PosixStorage::Open(path_, false));
  CAIRN_ASSIGN_OR_RETURN(const auto entries, storage->List(""));
  for (const auto& [name, is_directory] : entries) {
    // Whoever wrote this would hold the lock if it were alive.
    if (locked_ && name.starts_with(kTemporaryPrefix)) unlinkat(fd_.get(), name.c_str(), 0);
    if (name.starts_with(kTemporaryPrefix) || (!IsOfACheckpoint(name) && !is_output(name))) continue;
    return MakeError(Reason::kOutputExists,
                     absl::StrCat(path_, " holds ", name, " already; export into an empty directory"),
                     {{"file", PathOf(name)}});
  }
  return absl::OkStatus();
}

absl::Status OutputDirectory::Lock() {
  if (RetryInterrupted([&] { return flock(fd_.get(), LOCK_EX | LOCK_NB); }) == 0) {
    locked_ = true;
    return absl::OkStatus();
  }
  // Some file systems do not lock directories.
  if (errno != EWOULDBLOCK) return absl::OkStatus();
  return MakeError(Reason::kOutputExists, absl::StrCat("another export fills ", path_), {{"file", path_}});
}

absl::StatusOr<UniqueFd> OutputDirectory::Create(const std::string& name, uint64_t bytes) {
  const std::string temporary =
      absl::StrCat(std::string(kTemporaryPrefix), absl::Hex(RandomId(), absl::kZeroPad16), "-", name);
  UniqueFd fd = OpenIn(fd_.get(), temporary, O_WRONLY | O_CREAT | O_EXCL);
  if (!fd.valid()) return ErrnoError(errno, "create", PathOf(name));
  files_.emplace_back(temporary, name);
  const int error = bytes == 0 ? 0 : posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return Annotate(ErrnoError(error, "reserve", PathOf(name)), absl::StrCat(bytes, " bytes"));
  }
  return fd;
}

absl::Status OutputDirectory::Write(int fd, const std::string& name, uint64_t offset, std::string_view bytes) {
  const int error = WriteFullyAt(fd, bytes, offset);
  return error == 0 ? absl::OkStatus() : ErrnoError(error, "write", PathOf(name));
}

absl::Status OutputDirectory::Sync(int fd, const std::string& name) {
  return Fsync(fd) == 0 ? absl::OkStatus() : ErrnoError(errno, "fsync", PathOf(name));
}

absl::Status OutputDirectory::Add(const std::string& name, std::string_view bytes) {
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd fd, Create(name, bytes.size()));
  CAIRN_RETURN_IF_ERROR(Write(fd.get(), name, 0, bytes));
  return Sync(fd.get(), name);
}

absl::Status OutputDirectory::Copy(const std::string& name, const std::string& source) {
  const UniqueFd from(open(source.c_str(), O_RDONLY | O_CLOEXEC));
  if (!from.valid()) return ErrnoError(errno, "open", source);
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd to, Create(name, 0));
  std::string piece(kCopiedBytes, '\0');
  for (uint64_t offset = 0;; offset += piece.size()) {
    size_t got = 0;
    const int error = ReadFullyAt(from.get(), piece.data(), kCopiedBytes, offset, got);
    if (error != 0) return ErrnoError(error, "read", source);
    piece.resize(got);
    CAIRN_RETURN_IF_ERROR(Write(to.get(), name, offset, piece));
    if (got < kCopiedBytes) return Sync(to.get(), name);
  }
}

absl::Status OutputDirectory::Publish() {
  while (!files_.empty()) {
    const auto& [temporary, name] = files_.front();
    // The name must not replace something that has come meanwhile.
    const int error = LinkNoReplace(fd_.get(), temporary, name);
    if (error == EEXIST) {
      return MakeError(Reason::kOutputExists, absl::StrCat(PathOf(name), " has come to be there meanwhile"),
                       {{"file", PathOf(name)}});
    }
    if (error != 0) return ErrnoError(error, "link", PathOf(name));
    unlinkat(fd_.get(), temporary.c_str(), 0);
    published_.push_back(name);
    // The files before the last one must be durable before that one has its name.
    if (files_.size() <= 2) CAIRN_RETURN_IF_ERROR(SyncDirectory());
    files_.erase(files_.begin());
  }
  if (made_directory_) {
    const UniqueFd parent(openat(fd_.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!parent.valid() || Fsync(parent.get()) != 0) return ErrnoError(errno, "fsync", path_);
  }
  done_ = true;
  published_.clear();
  return absl::OkStatus();
}

absl::Status OutputDirectory::SyncDirectory() {
  return Fsync(fd_.get()) == 0 ? absl::OkStatus() : ErrnoError(errno, "fsync", path_);
}

}  // namespace cairn
