#include "store/posix/posix_file_writer.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/file/direct_io.h"
#include "common/file/errno_error.h"
#include "common/file/retry.h"
#include "common/resources/aligned_buffer.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr std::string_view kPartial = ".partial";

// Returns the name that the file has until it is finished: its last ending is another one.
std::string PartialPathOf(std::string_view path) {
  const size_t dot = path.rfind('.');
  const size_t slash = path.rfind('/');
  const bool has_ending = dot != std::string_view::npos && (slash == std::string_view::npos || slash < dot);
  return absl::StrCat(std::string(has_ending ? path.substr(0, dot) : path), std::string(kPartial));
}

}  // namespace

bool IsPartialName(std::string_view name) {
  return name.starts_with("rank") && name.find("-bin") != std::string_view::npos && name.ends_with(kPartial);
}

PosixFileWriter::PosixFileWriter(ConfinedDirectory& root, std::string_view path, uint64_t bytes,
                                 const PosixCalls& calls)
    : root_(root), calls_(calls), final_path_(path), partial_path_(PartialPathOf(path)), bytes_(bytes) {}

absl::StatusOr<std::unique_ptr<PosixFileWriter>> PosixFileWriter::Create(ConfinedDirectory& root, std::string_view path,
                                                                         uint64_t header_bytes, uint64_t data_bytes,
                                                                         const PosixCalls& calls) {
  std::unique_ptr<PosixFileWriter> writer(new PosixFileWriter(root, path, header_bytes + data_bytes, calls));
  // Without O_DIRECT: a file system may make the file and then refuse the flag.
  CAIRN_ASSIGN_OR_RETURN(writer->fd_, root.OpenFile(writer->partial_path_, O_WRONLY | O_CREAT | O_EXCL));
  writer->made_partial_ = true;
  const absl::Status prepared = writer->Prepare(header_bytes + RoundUpToIo(data_bytes));
  if (prepared.ok()) return writer;
  const absl::Status removed = writer->Remove();
  if (removed.ok()) return prepared;
  return Annotate(prepared, absl::StrCat("(and its file could not be removed: ", removed.message(), ")"));
}

absl::Status PosixFileWriter::Prepare(uint64_t bytes) {
  while (bytes > 0 && fallocate(fd_.get(), 0, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno == EINTR) continue;
    if (errno == EOPNOTSUPP || errno == ENOSYS) break;
    return Failed(errno, "allocate", absl::StrCat(bytes, " bytes"));
  }
  if (!calls_.direct || fcntl(fd_.get(), F_SETFL, fcntl(fd_.get(), F_GETFL) | O_DIRECT) != 0) {
    buffered_ = true;
    return absl::OkStatus();
  }
  // Some file systems accept O_DIRECT and then refuse the write. The header will replace these zeros.
  const AlignedBuffer zeros(kIoAlignment);
  return Write(0, zeros.data(), kIoAlignment);
}

absl::Status PosixFileWriter::Write(uint64_t offset, const char* bytes, uint64_t size) {
  ShortWrites progress(size);
  while (!progress.finished()) {
    const uint64_t done = progress.done();
    // Before the write: another thread may change it meanwhile.
    const bool direct = !buffered_;
    const ssize_t written = calls_.pwrite
                                ? calls_.pwrite(fd_.get(), bytes + done, size - done, static_cast<off_t>(offset + done))
                                : ::pwrite(fd_.get(), bytes + done, size - done, static_cast<off_t>(offset + done));
    if (written < 0) {
      if (errno == EINTR) continue;
      if (errno == EINVAL && direct) {
        // Direct I/O is refused: the file goes through the page cache from now on, and writes under way are repeated.
        if (EndDirectIo(fd_.get()) == 0) {
          buffered_ = true;
          continue;
        }
        errno = EINVAL;
      }
      return Failed(errno, "write", absl::StrCat(size - done, " bytes at ", offset + done));
    }
    if (!progress.Took(static_cast<uint64_t>(written), direct)) {
      return Failed(ENOSPC, "write", absl::StrCat(size - done, " bytes at ", offset + done));
    }
  }
  return absl::OkStatus();
}

absl::Status PosixFileWriter::Finish(std::string_view header) {
  if (!header.empty()) {
    AlignedBuffer buffer(header.size());
    std::memcpy(buffer.data(), header.data(), header.size());
    CAIRN_RETURN_IF_ERROR(Write(0, buffer.data(), header.size()));
  }
  if (Truncate(fd_.get(), bytes_) != 0) return Failed(errno, "truncate", "");
  if (Fsync(fd_.get()) != 0) return Failed(errno, "fsync", absl::StrCat(bytes_, " bytes"));
  fd_ = UniqueFd();
  const PutResult renamed = root_.Rename(partial_path_, final_path_);
  made_final_ = renamed.put.ok() ? *renamed.put == Put::kCreated : renamed.in_doubt;
  CAIRN_RETURN_IF_ERROR(renamed.put.status());
  if (*renamed.put == Put::kExists) return ErrnoError(EEXIST, "rename", absl::StrCat(root_.path(), "/", final_path_));
  return absl::OkStatus();
}

absl::Status PosixFileWriter::Remove() {
  fd_ = UniqueFd();
  absl::Status partial, complete;
  if (made_partial_) partial = root_.RemoveAll(partial_path_);
  if (made_final_) complete = root_.RemoveAll(final_path_);
  return partial.ok() ? complete : partial;
}

absl::Status PosixFileWriter::Failed(int error, std::string_view operation, const std::string& what) const {
  const absl::Status status = ErrnoError(error, operation, absl::StrCat(root_.path(), "/", partial_path_));
  if (what.empty()) return status;
  // A full quota tells no number: the file system itself may have room.
  struct statvfs room = {};
  if (error == ENOSPC && fstatvfs(fd_.get(), &room) == 0) {
    const std::string free = absl::StrCat(room.f_bavail * room.f_frsize);
    return Annotate(status, absl::StrCat(what, " (", free, " bytes are free)"), {{"free_bytes", free}});
  }
  return Annotate(status, what);
}

}  // namespace cairn
