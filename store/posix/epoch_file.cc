#include "store/posix/epoch_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/random_id.h"
#include "common/file/errno_error.h"
#include "common/file/full_transfer.h"
#include "common/file/retry.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/posix/nested_root.h"

namespace cairn {
namespace {

constexpr char kPath[] = ".cairn/epoch";
// The record keeps its length, within one sector, so that a power cut leaves the old one or the new one.
constexpr size_t kRecordBytes = 256;
// The first word of the record says what the root may hold. Versions that know only kFirstFormat refuse any other word.
constexpr char kFirstFormat[] = "epoch";
constexpr char kDeletionsFormat[] = "epoch/2";

std::string WithFormat(const std::string& record, const std::string& format) {
  std::string text = absl::StrCat(format, record.substr(record.find(' ')));
  absl::StripTrailingAsciiWhitespace(&text);
  text.resize(kRecordBytes - 1, ' ');
  text += '\n';
  return text;
}

std::string HostName() {
  char name[128] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

absl::StatusOr<std::string> Read(int fd, const std::string& path) {
  std::string record(kRecordBytes, '\0');
  size_t got = 0;
  if (const int error = ReadFullyAt(fd, record.data(), record.size(), 0, got); error != 0) {
    return ErrnoError(error, "read", path);
  }
  record.resize(got);
  return record;
}

// Also a file that a person has edited is not longer than this.
constexpr uint64_t kMaxFileBytes = 4096;
// The question that has no answer when two readings of the record differ.
constexpr char kQuestion[] = "which coordinator the root has";

// Reads the record a second time, past the page cache, so that no bit that was flipped in memory is believed.
absl::StatusOr<std::string> ReadOnceMore(Storage& storage) {
  CAIRN_ASSIGN_OR_RETURN(std::string record, storage.Read(kPath, kMaxFileBytes, Cache::kBypass));
  record.resize(std::min(record.size(), kRecordBytes));
  return record;
}

// Where the coordinator of an epoch serves: "EPOCH HOST:PORT". It is a file of its own, because a coordinator knows its
// address only when it serves, and the record must not change without need.
constexpr char kAddressPath[] = ".cairn/address";

std::vector<std::string> WordsOf(const std::string& text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
}

RootHolder HolderIn(Storage& storage, const std::string& record) {
  const std::vector<std::string> words = WordsOf(record);
  if (words.size() < 4) return {"an unknown process", "", ""};
  RootHolder holder = {absl::StrCat("process ", words[2], " on ", words[3], " (epoch ", words[1], ")"), words[3], ""};
  const std::vector<std::string> told = WordsOf(storage.Read(kAddressPath, kMaxFileBytes).value_or(""));
  if (told.size() == 2 && told[0] == words[1]) holder.address = told[1];
  return holder;
}

absl::Status InUse(const std::string& root, const RootHolder& holder) {
  ErrorMetadata metadata = {{"root", root}, {"holder", holder.text}};
  std::string where;
  if (!holder.address.empty()) {
    where = absl::StrCat(" at ", holder.address);
    metadata.emplace_back("address", holder.address);
  }
  return MakeError(Reason::kRootInUse, absl::StrCat(root, " is served by ", holder.text, where), metadata);
}

}  // namespace

absl::StatusOr<std::unique_ptr<EpochFile>> EpochFile::Acquire(Storage& storage, ConfinedDirectory& directory) {
  const std::string path = storage.FullPath(kPath);
  // The check comes first, because the files of a coordinator would make this directory a root.
  CAIRN_RETURN_IF_ERROR(CheckStandsAlone(storage.root()));
  CAIRN_RETURN_IF_ERROR(storage.MakeDirectories(".cairn"));
  // A pipe in the place of the file must not hold up the call.
  CAIRN_ASSIGN_OR_RETURN(UniqueFd fd, directory.OpenFile(kPath, O_RDWR | O_CREAT | O_NONBLOCK, 0644));
  struct stat info;
  if (StatOf(fd.get(), info) != 0) return ErrnoError(errno, "stat", path);
  if (!S_ISREG(info.st_mode)) return NoRegularFileError(info.st_mode, "read", path);
  while (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return ErrnoError(errno, "lock", path);
    const auto record = Read(fd.get(), path);
    return InUse(storage.root(), HolderIn(storage, record.value_or("")));
  }
  CAIRN_ASSIGN_OR_RETURN(const std::string record, Read(fd.get(), path));
  // From a wrong number an epoch could follow that agents have seen before.
  CAIRN_ASSIGN_OR_RETURN(const std::string again, ReadOnceMore(storage));
  if (again != record) return GaveOtherBytes(path, kQuestion);
  uint64_t epoch = 0;
  std::string format = kFirstFormat;
  if (!record.empty()) {
    const std::vector<std::string> words = WordsOf(record);
    if (!words.empty() && words[0] == kDeletionsFormat) format = kDeletionsFormat;
    if (!words.empty() && words[0] != format && words[0].starts_with("epoch/")) {
      return MakeError(Reason::kFormatTooNew,
                       absl::StrCat(storage.root(), " was written by a later version of Cairn (", path, " begins with ",
                                    words[0], ")"),
                       {{"file", path}, {"root", storage.root()}});
    }
    if (words.size() < 2 || words[0] != format || !absl::SimpleAtoi(words[1], &epoch)) {
      return MakeError(Reason::kFileTruncated,
                       absl::StrCat(path,
                                    " does not hold an epoch. Write \"epoch N\" with an N above every epoch in the "
                                    "agents' logs into it"),
                       {{"file", path}});
    }
  }
  ++epoch;
  // If two processes get the lock at once, both write the same epoch. The random word makes their records differ.
  std::string text = absl::StrFormat("%s %u %d %s %s ", format, epoch, getpid(), HostName(), RandomToken(8));
  text.resize(kRecordBytes - 1, ' ');
  text += '\n';
  if (const int error = WriteFullyAt(fd.get(), text, 0); error != 0) return ErrnoError(error, "write", path);
  if (Fsync(fd.get()) != 0) return ErrnoError(errno, "write", path);
  CAIRN_RETURN_IF_ERROR(storage.Sync(".cairn"));
  if (StatOf(fd.get(), info) != 0) return ErrnoError(errno, "stat", path);
  return std::unique_ptr<EpochFile>(
      new EpochFile(storage, std::move(fd), epoch, std::move(text), absl::TimeFromTimespec(info.st_mtim)));
}

absl::StatusOr<std::optional<RootHolder>> EpochFile::HolderOf(Storage& storage, ConfinedDirectory& directory) {
  auto opened = directory.OpenFile(kPath, O_RDONLY | O_NONBLOCK);
  if (HasReason(opened.status(), Reason::kFileMissing)) return std::nullopt;
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd fd, std::move(opened));
  // A shared lock is given back at once, so two that look do not take each other for the holder. A coordinator that
  // starts at this moment tries again.
  if (RetryInterrupted([&] { return flock(fd.get(), LOCK_SH | LOCK_NB); }) == 0) return std::nullopt;
  if (errno != EWOULDBLOCK) return ErrnoError(errno, "lock", storage.FullPath(kPath));
  return HolderIn(storage, Read(fd.get(), kPath).value_or(""));
}

absl::Status EpochFile::TellAddress(const std::string& address) const {
  return storage_.PutReplacing(kAddressPath, absl::StrCat(epoch_, " ", address, "\n"));
}

absl::Status EpochFile::Look() const {
  MutexLock lock(mutex_);
  return CheckRecord();
}

absl::Status EpochFile::RaiseFormat() const {
  MutexLock lock(mutex_);
  CAIRN_RETURN_IF_ERROR(CheckRecord());
  const std::string raised = WithFormat(text_, kDeletionsFormat);
  if (text_ == raised && durable_) return absl::OkStatus();
  const std::string path = storage_.FullPath(kPath);
  durable_ = false;
  tried_ = raised;
  if (const int error = WriteFullyAt(fd_.get(), raised, 0); error != 0) return ErrnoError(error, "write", path);
  text_ = raised;
  if (Fsync(fd_.get()) != 0) return ErrnoError(errno, "write", path);
  durable_ = true;
  // If the path leads to another file by now, nobody reads what was written.
  return CheckRecord();
}

bool EpochFile::IsOwn(const std::string& text) const {
  if (text == text_) return true;
  const std::string& tried = tried_;
  if (tried.empty() || text.size() != tried.size()) return false;
  const auto parted = std::mismatch(text.begin(), text.end(), tried.begin());
  const auto at = static_cast<size_t>(parted.first - text.begin());
  return text.substr(at) == text_.substr(at);
}

absl::Status EpochFile::CheckRecord() const {
  const auto record = storage_.Read(kPath, kMaxFileBytes);
  const bool missing = HasReason(record.status(), Reason::kFileMissing);
  if (!record.ok() && !missing && !HasReason(record.status(), Reason::kMessageTooLarge)) return record.status();
  if (record.ok() && IsOwn(*record)) return absl::OkStatus();
  std::string standing = record.value_or("");
  if (record.ok() || missing) {
    const auto again = ReadOnceMore(storage_);
    const bool still_missing = HasReason(again.status(), Reason::kFileMissing);
    if (!again.ok() && !still_missing) return again.status();
    if (again.ok() && IsOwn(*again)) return absl::OkStatus();
    if (missing != still_missing || (again.ok() && *again != standing.substr(0, kRecordBytes))) {
      return GaveOtherBytes(storage_.FullPath(kPath), kQuestion);
    }
  }
  const std::string holder = HolderIn(storage_, standing).text;
  const std::string next =
      "Look which coordinators were started with this --root, and end all but one; the one that stays has to be "
      "started again if it has ended.";
  return MakeError(
      Reason::kRootInUse,
      missing ? absl::StrCat(storage_.root(), "/", kPath, " is missing, so it is not known who serves the root")
              : absl::StrCat(storage_.root(), " is served by ", holder,
                             " now, though this process was never told that it lost the lock"),
      {{"root", storage_.root()}, {"holder", holder}, {"next", next}});
}

}  // namespace cairn
