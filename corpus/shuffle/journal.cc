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
#include "common/file/full_transfer.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/errno_status.h"

namespace cairn::corpus {

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return OutputError("create", path, errno);
  auto journal = std::unique_ptr<Journal>(new Journal(path, std::move(fd)));
  if (flock(journal->fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return OutputError("lock", path, errno);
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("another process is running this shuffle (", path, " is locked)"), {{"file", path}});
  }
  CAIRN_RETURN_IF_ERROR(journal->Load());
  return journal;
}

absl::Status Journal::Load() {
  struct stat found;
  if (fstat(fd_.get(), &found) != 0) return OutputError("read", path_, errno);
  std::string text(static_cast<size_t>(found.st_size), '\0');
  size_t got = 0;
  const int error = ReadFullyAt(fd_.get(), text.data(), text.size(), 0, got);
  if (error != 0 || got < text.size()) return OutputError("read", path_, error != 0 ? error : EIO);
  while (size_ < text.size()) {
    const size_t stop = text.find('\n', size_);
    if (stop == std::string::npos || stop < size_ + 9) break;
    const std::string body = text.substr(size_ + 9, stop - size_ - 9);
    uint32_t crc;
    if (!absl::SimpleHexAtoi(text.substr(size_, 8), &crc) || crc != Crc32c(body.data(), body.size())) break;
    nlohmann::json entry = nlohmann::json::parse(body, nullptr, false);
    if (!entry.is_object()) break;
    entries_.push_back(std::move(entry));
    ++count_;
    size_ = stop + 1;
  }
  if (ftruncate(fd_.get(), static_cast<off_t>(size_)) != 0) return OutputError("truncate", path_, errno);
  return absl::OkStatus();
}

absl::Status Journal::BeginAnew(const nlohmann::json& first) {
  entries_.clear();
  count_ = 0;
  size_ = 0;
  if (ftruncate(fd_.get(), 0) != 0) return OutputError("truncate", path_, errno);
  return Append(first);
}

absl::Status Journal::Append(const nlohmann::json& entry) {
  const std::string body = entry.dump();
  const std::string line = absl::StrCat(absl::StrFormat("%08x", Crc32c(body.data(), body.size())), " ", body, "\n");
  if (const int error = WriteFullyAt(fd_.get(), line, size_); error != 0) return OutputError("write", path_, error);
  if (fdatasync(fd_.get()) != 0) return OutputError("fsync", path_, errno);
  size_ += line.size();
  ++count_;
  return absl::OkStatus();
}

}  // namespace cairn::corpus
