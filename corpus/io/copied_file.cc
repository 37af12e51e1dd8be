#include "corpus/io/copied_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/file/atomic_write.h"
#include "common/file/full_transfer.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/errno_status.h"
#include "corpus/io/hidden_file.h"
#include "corpus/io/output_place.h"

namespace cairn::corpus {
namespace {

constexpr size_t kBufferBytes = 4 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<CopiedFile>> CopiedFile::Create(std::string path) {
  CAIRN_ASSIGN_OR_RETURN(OutputPlace place, FindReplaceable(path));
  path = std::move(place.path);
  RemoveLeftHidden(path, [](std::string_view) { return false; });
  std::string partial;
  UniqueFd fd;
  do {
    partial = HiddenName(path, FreshHiddenToken());
    fd = UniqueFd(open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!fd.valid()) return OutputError("create", partial, errno);
  } while (!LockHidden(fd.get()));
  return std::unique_ptr<CopiedFile>(new CopiedFile(std::move(path), std::move(partial), std::move(fd)));
}

CopiedFile::~CopiedFile() {
  if (!committed_) unlink(partial_path_.c_str());
}

absl::StatusOr<uint64_t> CopiedFile::AppendFrom(int source, const std::string& source_path, uint64_t offset,
                                                uint64_t bytes) {
  auto from = static_cast<off_t>(offset);
  auto to = static_cast<off_t>(bytes_);
  ssize_t count;
  do {
    count = copy_file_range(source, &from, fd_.get(), &to, bytes, 0);
  } while (count < 0 && errno == EINTR);
  // Some file systems (FUSE) return 0 because they cannot do it. The read into the buffer tells that from the end.
  if (count <= 0) {
    if (count < 0 && errno != EXDEV && errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP && errno != EPERM) {
      return OutputError("copy to", partial_path_, errno);
    }
    return AppendThroughBuffer(source, source_path, offset, bytes);
  }
  // The disk begins to write now and not only at the sync.
  (void)sync_file_range(fd_.get(), static_cast<off_t>(bytes_), count, SYNC_FILE_RANGE_WRITE);
  bytes_ += static_cast<uint64_t>(count);
  kernel_bytes_ += static_cast<uint64_t>(count);
  return static_cast<uint64_t>(count);
}

absl::StatusOr<uint64_t> CopiedFile::AppendThroughBuffer(int source, const std::string& source_path, uint64_t offset,
                                                         uint64_t bytes) {
  if (buffer_.size() == 0) buffer_ = AlignedBuffer(kBufferBytes);
  ssize_t count;
  do {
    count = pread(source, buffer_.data(), std::min<uint64_t>(bytes, buffer_.size()), static_cast<off_t>(offset));
  } while (count < 0 && errno == EINTR);
  if (count < 0) return InputError("read", source_path, errno);
  if (count == 0) {
    return MakeError(Reason::kInputUnreadable, absl::StrCat(source_path, " ends at byte ", offset),
                     {{"file", source_path}});
  }
  const auto read = static_cast<size_t>(count);
  if (const int error = WriteFullyAt(fd_.get(), {buffer_.data(), read}, bytes_); error != 0) {
    return OutputError("write", partial_path_, error);
  }
  bytes_ += read;
  return read;
}

absl::Status CopiedFile::Finish() {
  if (finished_) return absl::OkStatus();
  if (fsync(fd_.get()) != 0) return OutputError("fsync", partial_path_, errno);
  finished_ = true;
  return absl::OkStatus();
}

absl::Status CopiedFile::Commit() {
  CAIRN_RETURN_IF_ERROR(Finish());
  CAIRN_RETURN_IF_ERROR(PublishFile(partial_path_, path_, AtomicWriteOptions::Durable::kBytes));
  committed_ = true;
  return SyncDirectoryOf(path_);
}

}  // namespace cairn::corpus
