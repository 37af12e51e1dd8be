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
  CAIRN_ASSIGN_OR_RETURN(const Copied copied,
                         Copy({source, source_path, offset, bytes, bytes_}, fd_.get(), partial_path_, buffer_));
  bytes_ += copied.bytes;
  if (copied.by_kernel) kernel_bytes_ += copied.bytes;
  return copied.bytes;
}

absl::Status CopiedFile::AppendBytes(std::string_view bytes) {
  if (const int error = WriteFullyAt(fd_.get(), {bytes.data(), bytes.size()}, bytes_); error != 0) {
    return OutputError("write", partial_path_, error);
  }
  bytes_ += bytes.size();
  return absl::OkStatus();
}

absl::StatusOr<CopiedFile::Copied> CopiedFile::Copy(const Range& range, int file, const std::string& path,
                                                    AlignedBuffer& buffer) {
  auto from = static_cast<off_t>(range.offset);
  auto to = static_cast<off_t>(range.to);
  ssize_t count;
  do {
    count = copy_file_range(range.source, &from, file, &to, range.bytes, 0);
  } while (count < 0 && errno == EINTR);
  if (count > 0) {
    // The disk begins to write now and not only at the sync.
    (void)sync_file_range(file, static_cast<off_t>(range.to), count, SYNC_FILE_RANGE_WRITE);
    return Copied{static_cast<uint64_t>(count), true};
  }
  if (count < 0 && errno != EXDEV && errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP && errno != EPERM) {
    return OutputError("copy to", path, errno);
  }
  // Some file systems (FUSE) return 0 because they cannot do it. The read into the buffer tells that from the end.
  if (buffer.size() == 0) buffer = AlignedBuffer(kBufferBytes);
  do {
    count = pread(range.source, buffer.data(), std::min<uint64_t>(range.bytes, buffer.size()),
                  static_cast<off_t>(range.offset));
  } while (count < 0 && errno == EINTR);
  if (count < 0) return InputError("read", range.source_path, errno);
  if (count == 0) {
    return MakeError(Reason::kInputUnreadable, absl::StrCat(range.source_path, " ends at byte ", range.offset),
                     {{"file", range.source_path}});
  }
  const auto read = static_cast<size_t>(count);
  if (const int error = WriteFullyAt(file, {buffer.data(), read}, range.to); error != 0) {
    return OutputError("write", path, error);
  }
  return Copied{read, false};
}

absl::Status CopiedFile::Resize(uint64_t bytes) {
  if (ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) return OutputError("resize", partial_path_, errno);
  return absl::OkStatus();
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
