#include "corpus/shuffle/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/crc32c.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/errno_status.h"

namespace cairn::corpus {

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return OutputError("create", path, errno);
  auto journal = std::unique_ptr<Journal>(new Journal(path, fd));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("another process is running this shuffle (", path, " is locked)"), {{"file", path}});
  }
  CAIRN_RETURN_IF_ERROR(journal->Load());
  return journal;
}

Journal::~Journal() { close(fd_); }

absl::Status Journal::Load() {
  struct stat found;
  if (fstat(fd_, &found) != 0) return OutputError("read", path_, errno);
  std::string text(static_cast<size_t>(found.st_size), '\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = pread(fd_, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return OutputError("read", path_, count == 0 ? EIO : errno);
    done += static_cast<size_t>(count);
  }
  while (size_ < text.size()) {
    const size_t stop = text.find('\n', size_);
    if (stop == std::string::npos || stop < size_ + 9) break;
    const std::string body = text.substr(size_ + 9, stop - size_ - 9);
    uint32_t crc;
    if (!absl::SimpleHexAtoi(text.substr(size_, 8), &crc) || crc != Crc32c(body.data(), body.size())) break;
    nlohmann::json entry = nlohmann::json::parse(body, nullptr, false);
    if (!entry.is_object()) break;
    entries_.push_back(std::move(entry));
    size_ = stop + 1;
  }
  if (ftruncate(fd_, static_cast<off_t>(size_)) != 0) return OutputError("cut", path_, errno);
  return absl::OkStatus();
}

absl::Status Journal::BeginAnew(const nlohmann::json& first) {
  entries_.clear();
  size_ = 0;
  if (ftruncate(fd_, 0) != 0) return OutputError("cut", path_, errno);
  return Append(first);
}

absl::Status Journal::Append(const nlohmann::json& entry) {
  const std::string body = entry.dump();
  const std::string line = absl::StrCat(absl::StrFormat("%08x", Crc32c(body.data(), body.size())), " ", body, "\n");
  for (size_t done = 0; done < line.size();) {
    const ssize_t count = pwrite(fd_, line.data() + done, line.size() - done, static_cast<off_t>(size_ + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return OutputError("write", path_, count == 0 ? ENOSPC : errno);
    done += static_cast<size_t>(count);
  }
  if (fdatasync(fd_) != 0) {
    return MakeError(Reason::kFsyncFailed, absl::StrCat("cannot sync ", path_), {{"file", path_}});
  }
  size_ += line.size();
  return absl::OkStatus();
}

}  // namespace cairn::corpus
