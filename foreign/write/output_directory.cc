#include "foreign/write/output_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/random_id.h"
#include "common/file/atomic_write.h"
#include "common/file/confined_path.h"
#include "common/file/direct_io.h"
#include "common/file/errno_error.h"
#include "common/file/retry.h"
#include "common/resources/aligned_buffer.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "foreign/read/source/foreign_file.h"
#include "store/posix/posix_file.h"

namespace cairn {
namespace {

constexpr std::string_view kTemporaryPrefix = ".tmp-export-";
constexpr std::string_view kFinishedPrefix = ".tmp-export-done-";
constexpr uint64_t kCopiedBytes = uint64_t{1} << 20;
// A finished file is read by kThreads threads, in pieces of this many bytes.
constexpr int kThreads = 2;
constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
constexpr size_t kChecksumDigits = 8;

// The parts of the temporary name of a finished file; views into that name.
struct FinishedName {
  std::string_view identity;
  uint32_t crc32c = 0;
  std::string_view name;
};

// Reads ".tmp-export-done-IDENTITY-CRC-NAME".
std::optional<FinishedName> ReadFinishedName(std::string_view temporary) {
  if (!temporary.starts_with(kFinishedPrefix)) return std::nullopt;
  temporary.remove_prefix(kFinishedPrefix.size());
  FinishedName finished;
  finished.identity = temporary.substr(0, temporary.find('-'));
  temporary.remove_prefix(finished.identity.size());
  if (temporary.size() < kChecksumDigits + 3 || temporary[kChecksumDigits + 1] != '-') return std::nullopt;
  const char* const end = temporary.data() + 1 + kChecksumDigits;
  if (std::from_chars(temporary.data() + 1, end, finished.crc32c, 16).ptr != end) return std::nullopt;
  finished.name = temporary.substr(kChecksumDigits + 2);
  return finished;
}

// Returns the CRC32C of a file, or nothing if it cannot be read. CANCELLED (INTERRUPTED).
absl::StatusOr<std::optional<uint32_t>> ChecksumOf(ConfinedDirectory& storage, const std::string& name, uint64_t bytes,
                                                   const std::function<bool()>& interrupted) {
  const auto reader = PosixFile::Open(storage, name, absl::StrCat(storage.path(), "/", name),
                                      {.cache = Cache::kSpare, .bytes = bytes}, PosixCalls());
  if (!reader.ok()) return std::nullopt;
  std::vector<AlignedBuffer> buffers;
  for (int i = 0; i < kThreads; ++i) buffers.emplace_back(kPieceBytes);
  std::vector<uint32_t> checksums((bytes + kPieceBytes - 1) / kPieceBytes);
  const auto read = [&](size_t piece, int thread) {
    if (interrupted && interrupted()) return MakeError(Reason::kInterrupted, "interrupted");
    char* const to = buffers[static_cast<size_t>(thread)].data();
    const uint64_t at = piece * kPieceBytes, size = std::min(kPieceBytes, bytes - at);
    CAIRN_RETURN_IF_ERROR((*reader)->Read(at, size, to, /*in_place=*/true));
    checksums[piece] = Crc32c(to, size);
    return absl::OkStatus();
  };
  const absl::Status all_read = ForEachOnThreads("to check a file that is finished", checksums.size(), kThreads, read);
  if (HasReason(all_read, Reason::kInterrupted) || HasReason(all_read, Reason::kMemoryLimit)) return all_read;
  if (!all_read.ok()) return std::nullopt;
  uint32_t all = 0;
  for (uint64_t at = 0; at < bytes; at += kPieceBytes) {
    all = CombineCrc32c(all, checksums[at / kPieceBytes], std::min(kPieceBytes, bytes - at));
  }
  return all;
}

class FileOfDirectory : public OutputFile {
 public:
  FileOfDirectory(OutputDirectory& output, UniqueFd fd, std::string name, uint64_t bytes)
      : output_(output), fd_(std::move(fd)), name_(std::move(name)) {
    // A smaller file has no whole block to try direct I/O with.
    if (bytes >= kIoAlignment) BeginDirectIo(fd_.get());
  }

  absl::Status Write(uint64_t offset, std::string_view bytes) override {
    const std::string_view blocks = bytes.substr(0, bytes.size() / kIoAlignment * kIoAlignment);
    if (!blocks.empty()) CAIRN_RETURN_IF_ERROR(output_.Write(fd_.get(), name_, offset, blocks));
    if (blocks.size() < bytes.size()) rest_ = {offset + blocks.size(), std::string(bytes.substr(blocks.size()))};
    return absl::OkStatus();
  }

  absl::Status Finish(uint32_t crc32c) override {
    // Only now no other thread writes past the page cache.
    if (!rest_.second.empty()) {
      if (const int error = EndDirectIo(fd_.get()); error != 0) return ErrnoError(error, "set up", name_);
      CAIRN_RETURN_IF_ERROR(output_.Write(fd_.get(), name_, rest_.first, rest_.second));
    }
    return output_.Finish(fd_.get(), name_, crc32c);
  }

 private:
  OutputDirectory& output_;
  const UniqueFd fd_;
  const std::string name_;
  std::pair<uint64_t, std::string> rest_;  // what is behind the last whole block; one piece alone has it
};

}  // namespace

OutputDirectory::~OutputDirectory() {
  if (!fd_.valid()) return;
  for (const File& file : files_) {
    if ((!file.finished || !keep_finished_) && !done_) UnlinkIn(fd_.get(), file.temporary);
  }
  for (const std::string& name : published_) UnlinkIn(fd_.get(), name);
  if (!keep_finished_) {
    for (const auto& [name, found] : found_) UnlinkIn(fd_.get(), found.temporary);
  }
  if (made_directory_ && !done_) rmdir(path_.c_str());
}

std::string OutputDirectory::PathOf(const std::string& name) const { return absl::StrCat(path_, "/", name); }

bool OutputDirectory::IsSameFile(const std::string& one, const std::string& other) const {
  struct stat first = {}, second = {};
  return fstatat(fd_.get(), one.c_str(), &first, AT_SYMLINK_NOFOLLOW) == 0 &&
         fstatat(fd_.get(), other.c_str(), &second, AT_SYMLINK_NOFOLLOW) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

absl::Status OutputDirectory::Open(const std::function<bool(std::string_view name)>& is_output) {
  if (RetryInterrupted([&] { return mkdir(path_.c_str(), 0755); }) == 0) {
    made_directory_ = true;
  } else if (errno == ENOENT) {
    // The parent directory is not made: if a mount were missing, the export would fill the disk below the mount point.
    return MakeError(Reason::kBadRequest, absl::StrCat("the directory above ", path_, " does not exist"),
                     {{"file", path_}, {"next", "Make that directory, or correct --to."}});
  } else if (errno != EEXIST) {
    return ErrnoError(errno, "make", path_);
  }
  fd_ = UniqueFd(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd_.valid()) return ErrnoError(errno, "open", path_);
  CAIRN_RETURN_IF_ERROR(Lock());
  CAIRN_ASSIGN_OR_RETURN(storage_, ConfinedDirectory::Open(path_, false));
  CAIRN_ASSIGN_OR_RETURN(const auto entries, storage_->List(""));
  std::vector<std::string> temporaries;
  for (const auto& [name, is_directory] : entries) {
    // The writer of this file has ended, because it would hold the lock.
    if (locked_ && name.starts_with(kTemporaryPrefix)) temporaries.push_back(name);
  }
  const std::vector<std::string> useless = FindFinished(temporaries);
  for (const auto& [name, is_directory] : entries) {
    if (name.starts_with(kTemporaryPrefix) || (!IsOfACheckpoint(name) && !is_output(name))) continue;
    // An export that was killed while it published has given the file this name.
    if (const auto found = found_.find(name); found != found_.end() && IsSameFile(name, found->second.temporary))
      continue;
    keep_finished_ = true;  // finished files do not cause this error
    RemoveSecondNames(temporaries);
    return MakeError(Reason::kOutputExists,
                     absl::StrCat(path_, " holds ", name, " already; export into an empty directory"),
                     {{"file", PathOf(name)}});
  }
  for (const std::string& temporary : useless) unlinkat(fd_.get(), temporary.c_str(), 0);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<OutputFile>> OutputDirectory::Begin(const std::string& name, uint64_t bytes) {
  CAIRN_ASSIGN_OR_RETURN(UniqueFd fd, Create(name, bytes));
  return std::make_unique<FileOfDirectory>(*this, std::move(fd), name, bytes);
}

std::vector<std::string> OutputDirectory::FindFinished(const std::vector<std::string>& temporaries) {
  std::vector<std::string> others;
  for (const std::string& temporary : temporaries) {
    const std::optional<FinishedName> finished = ReadFinishedName(temporary);
    struct stat file = {};
    if (finished && finished->identity == identity_ &&
        fstatat(fd_.get(), temporary.c_str(), &file, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(file.st_mode)) {
      const Found found{temporary, static_cast<uint64_t>(file.st_size), finished->crc32c};
      if (found_.emplace(finished->name, found).second) continue;
    }
    others.push_back(temporary);
  }
  return others;
}

// An export removes its temporary names only after all files have their final names. So if all remaining temporary
// files of an export have final names too, the export was complete when it was killed.
void OutputDirectory::RemoveSecondNames(const std::vector<std::string>& temporaries) {
  std::map<std::string_view, std::vector<std::string>> complete;  // by identity; empty if the export is not complete
  for (const std::string& temporary : temporaries) {
    const std::optional<FinishedName> finished = ReadFinishedName(temporary);
    if (!finished) return;  // a file was being written
    const auto [at, first] = complete.try_emplace(finished->identity);
    if (!first && at->second.empty()) continue;
    if (IsSameFile(temporary, std::string(finished->name))) {
      at->second.push_back(temporary);
    } else {
      at->second.clear();
    }
  }
  for (const auto& [identity, names] : complete) {
    for (const std::string& temporary : names) unlinkat(fd_.get(), temporary.c_str(), 0);
  }
}

absl::Status OutputDirectory::Lock() {
  if (RetryInterrupted([&] { return flock(fd_.get(), LOCK_EX | LOCK_NB); }) == 0) {
    locked_ = true;
    return absl::OkStatus();
  }
  // Some file systems do not lock directories.
  if (errno != EWOULDBLOCK) return absl::OkStatus();
  return MakeError(Reason::kOutputExists, absl::StrCat("another export is writing into ", path_), {{"file", path_}});
}

absl::StatusOr<bool> OutputDirectory::TakeFinished(const std::string& name, uint64_t bytes,
                                                   const std::function<bool()>& interrupted) {
  return Take(name, bytes, std::nullopt, interrupted);
}

absl::StatusOr<bool> OutputDirectory::Take(const std::string& name, uint64_t bytes, std::optional<uint32_t> crc32c,
                                           const std::function<bool()>& interrupted) {
  const auto at = found_.find(name);
  if (at == found_.end()) return false;
  const Found& found = at->second;
  // The name does not prove the content: somebody may have written to the file since, or the disk may have lost a part
  // of it.
  std::optional<uint32_t> checksum;
  if (found.bytes == bytes && found.crc32c == crc32c.value_or(found.crc32c)) {
    CAIRN_ASSIGN_OR_RETURN(checksum, ChecksumOf(*storage_, found.temporary, bytes, interrupted));
  }
  const bool whole = checksum == found.crc32c;
  if (!whole && IsSameFile(name, found.temporary)) {
    keep_finished_ = true;  // the other files do not cause this error
    return MakeError(Reason::kOutputExists,
                     absl::StrCat(PathOf(name), " has other bytes than the interrupted export has written"),
                     {{"file", PathOf(name)}, {"next", "Move that file away, and run the same command again."}});
  }
  if (whole) {
    files_.push_back({found.temporary, name, true});
  } else {
    unlinkat(fd_.get(), found.temporary.c_str(), 0);
  }
  found_.erase(at);
  return whole;
}

absl::StatusOr<UniqueFd> OutputDirectory::Create(const std::string& name, uint64_t bytes) {
  const std::string temporary =
      absl::StrCat(std::string(kTemporaryPrefix), absl::Hex(RandomId(), absl::kZeroPad16), "-", name);
  UniqueFd fd = OpenIn(fd_.get(), temporary, O_WRONLY | O_CREAT | O_EXCL);
  if (!fd.valid()) return ErrnoError(errno, "create", PathOf(name));
  files_.push_back({temporary, name});
  const int error = bytes == 0 ? 0 : posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return Annotate(ErrnoError(error, "reserve", PathOf(name)), absl::StrCat(bytes, " bytes"));
  }
  return fd;
}

absl::Status OutputDirectory::Write(int fd, const std::string& name, uint64_t offset, std::string_view bytes) const {
  const int error = WriteBlocksAt(fd, bytes, offset);
  return error == 0 ? absl::OkStatus() : ErrnoError(error, "write", PathOf(name));
}

absl::Status OutputDirectory::Sync(int fd, const std::string& name) {
  return Fsync(fd) == 0 ? absl::OkStatus() : ErrnoError(errno, "fsync", PathOf(name));
}

absl::Status OutputDirectory::Finish(int fd, const std::string& name, uint32_t crc32c) {
  CAIRN_RETURN_IF_ERROR(Sync(fd, name));
  if (!locked_) return absl::OkStatus();  // another export of this identity may be at work
  const auto file = std::find_if(files_.begin(), files_.end(), [&](const File& each) { return each.name == name; });
  const std::string finished =
      absl::StrCat(std::string(kFinishedPrefix), identity_, "-", absl::Hex(crc32c, absl::kZeroPad8), "-", name);
  if (renameat(fd_.get(), file->temporary.c_str(), fd_.get(), finished.c_str()) != 0) {
    return ErrnoError(errno, "rename", PathOf(name));
  }
  file->temporary = finished;
  file->finished = true;
  return absl::OkStatus();
}

absl::Status OutputDirectory::Add(const std::string& name, std::string_view bytes) {
  const uint32_t crc32c = Crc32c(bytes.data(), bytes.size());
  CAIRN_ASSIGN_OR_RETURN(const bool taken, Take(name, bytes.size(), crc32c, nullptr));
  if (taken) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd fd, Create(name, bytes.size()));
  CAIRN_RETURN_IF_ERROR(Write(fd.get(), name, 0, bytes));
  return Finish(fd.get(), name, crc32c);
}

absl::Status OutputDirectory::Copy(const std::string& name, const std::string& source) {
  CAIRN_ASSIGN_OR_RETURN(const ForeignFile from, ForeignFile::Open(source));
  uint32_t crc32c = 0;
  const auto for_each_piece = [&](const std::function<absl::Status(uint64_t, std::string_view)>& visit) {
    crc32c = 0;
    for (uint64_t at = 0; at < from.bytes(); at += kCopiedBytes) {
      CAIRN_ASSIGN_OR_RETURN(const std::string piece, from.Read(at, std::min(kCopiedBytes, from.bytes() - at)));
      crc32c = ExtendCrc32c(crc32c, piece.data(), piece.size());
      CAIRN_RETURN_IF_ERROR(visit(at, piece));
    }
    return absl::OkStatus();
  };
  if (found_.contains(name)) {
    CAIRN_RETURN_IF_ERROR(for_each_piece([](uint64_t, std::string_view) { return absl::OkStatus(); }));
    CAIRN_ASSIGN_OR_RETURN(const bool taken, Take(name, from.bytes(), crc32c, nullptr));
    if (taken) return absl::OkStatus();
  }
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd to, Create(name, 0));
  CAIRN_RETURN_IF_ERROR(
      for_each_piece([&](uint64_t at, std::string_view piece) { return Write(to.get(), name, at, piece); }));
  return Finish(to.get(), name, crc32c);
}

absl::Status OutputDirectory::Publish() {
  for (size_t i = 0; i < files_.size(); ++i) {
    const auto& [temporary, name, finished] = files_[i];
    // Temporary names must be durable before the first file gets its name: after a power cut they show the same export
    // that the file is its own. The names of all other files must be durable before the last file gets its name.
    if (i == 0 || i + 1 == files_.size()) CAIRN_RETURN_IF_ERROR(SyncDirectory());
    // It must not replace a file that somebody has made meanwhile.
    const int error = LinkNoReplace(fd_.get(), temporary, name);
    if (error == EEXIST && !IsSameFile(temporary, name)) {
      return MakeError(Reason::kOutputExists, absl::StrCat(PathOf(name), " was made by another program meanwhile"),
                       {{"file", PathOf(name)}});
    }
    if (error != 0 && error != EEXIST) return ErrnoError(error, "link", PathOf(name));
    published_.push_back(name);
  }
  CAIRN_RETURN_IF_ERROR(SyncDirectory());
  if (made_directory_) {
    const UniqueFd parent(openat(fd_.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!parent.valid() || Fsync(parent.get()) != 0) return ErrnoError(errno, "fsync", path_);
  }
  // Temporary names are removed only now, so that an export that is killed earlier can be continued.
  done_ = true;
  published_.clear();
  return RemoveTemporaryNames();
}

// Each temporary name is a second name of a published file. If one stays, nothing removes it later.
absl::Status OutputDirectory::RemoveTemporaryNames() {
  absl::Status left;
  for (const File& file : files_) {
    // If the file system has no links, the file was renamed, so the name is gone already.
    const auto remove = [&] { return UnlinkIn(fd_.get(), file.temporary) == 0 || errno == ENOENT; };
    if (remove() || remove() || !left.ok()) continue;
    const std::string path = PathOf(file.temporary);
    left = Annotate(ErrnoError(errno, "remove", path), absl::StrCat("the export is complete in ", path_),
                    {{"next", absl::StrCat("Use the export as it is. Remove ", path_,
                                           "/.tmp-export-* when the storage lets you, or run the same command again, "
                                           "which removes them.")}});
  }
  return left;
}

absl::Status OutputDirectory::Abandon(const absl::Status& error) {
  if (done_) return error;  // the export is complete; only temporary names are left
  const bool may_pass = absl::IsCancelled(error) || absl::IsResourceExhausted(error) || absl::IsUnavailable(error);
  const auto finished =
      static_cast<size_t>(std::count_if(files_.begin(), files_.end(), [](const File& file) { return file.finished; }) +
                          static_cast<ptrdiff_t>(found_.size()));
  if (!may_pass || finished == 0) return error;
  keep_finished_ = true;
  return Annotate(error,
                  absl::StrCat(finished, finished == 1 ? " file is" : " files are", " finished and kept in ", path_),
                  {{"next", absl::StrCat("Run the same command again when the cause is gone: it goes on from there. To "
                                         "give up, remove ",
                                         path_, "/.tmp-export-*")}});
}

absl::Status OutputDirectory::SyncDirectory() {
  return Fsync(fd_.get()) == 0 ? absl::OkStatus() : ErrnoError(errno, "fsync", path_);
}

}  // namespace cairn
