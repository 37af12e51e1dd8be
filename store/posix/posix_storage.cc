#include "store/posix/posix_storage.h"

#include "absl/strings/str_cat.h"
#include "common/file/atomic_write.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/posix/epoch_file.h"
#include "store/posix/posix_file.h"
#include "store/posix/posix_file_writer.h"

namespace cairn {
namespace {

bool IsUnfinished(std::string_view name) { return IsTemporaryName(name) || IsPartialName(name); }

}  // namespace

absl::StatusOr<std::unique_ptr<PosixStorage>> PosixStorage::Open(const std::string& root, bool create,
                                                                 PosixCalls calls) {
  CAIRN_ASSIGN_OR_RETURN(auto directory, ConfinedDirectory::Open(root, create));
  return std::unique_ptr<PosixStorage>(new PosixStorage(std::move(directory), std::move(calls)));
}

absl::StatusOr<std::unique_ptr<StoredFile>> PosixStorage::Open(std::string_view path, const OpenOptions& options) {
  return PosixFile::Open(*directory_, path, FullPath(path), options, calls_);
}

absl::StatusOr<std::vector<Storage::Entry>> PosixStorage::List(std::string_view directory) {
  CAIRN_ASSIGN_OR_RETURN(auto listed, directory_->List(directory));
  std::vector<Entry> entries;
  entries.reserve(listed.size());
  for (ConfinedDirectory::Entry& entry : listed) {
    const bool unfinished = IsUnfinished(entry.name);
    entries.push_back({std::move(entry.name), entry.directory, unfinished});
  }
  return entries;
}

absl::StatusOr<std::unique_ptr<FileWriter>> PosixStorage::Create(std::string_view path, uint64_t header_bytes,
                                                                 uint64_t data_bytes) {
  return PosixFileWriter::Create(*directory_, path, header_bytes, data_bytes, calls_);
}

absl::Status PosixStorage::RemoveUnfinished(const std::vector<std::string>& directories, absl::Time before) {
  absl::Status first;
  for (const std::string& directory : directories) {
    first.Update(directory_->RemoveTemporaries(directory, before, IsUnfinished).status());
  }
  return first;
}

absl::StatusOr<std::unique_ptr<RootLock>> PosixStorage::LockRoot() { return EpochFile::Acquire(*this, *directory_); }

absl::StatusOr<std::optional<RootHolder>> PosixStorage::HolderOfRoot() {
  return EpochFile::HolderOf(*this, *directory_);
}

absl::Status PosixStorage::ProbeAtomicCreate() {
  CAIRN_RETURN_IF_ERROR(MakeDirectories(".cairn"));
  // It has the name of an unfinished file. If the process is killed here, the next coordinator removes the file.
  const std::string path = absl::StrCat(".cairn/", NewTemporaryName());
  const auto first = PutIfAbsent(path, "1");
  const auto second = first.ok() ? PutIfAbsent(path, "2") : first;
  const auto content = first.ok() ? Read(path, 16) : absl::StatusOr<std::string>("");
  CAIRN_RETURN_IF_ERROR(RemoveAll(path));
  if (first.ok() && second.ok() && *first == Put::kCreated && *second == Put::kExists && content.ok() &&
      *content == "1") {
    return absl::OkStatus();
  }
  // A call that failed says nothing about what this file system can do.
  if (!second.ok() && first.ok()) return second.status();
  CAIRN_RETURN_IF_ERROR(content.status());
  // Errors of a full or read-only file system have reasons of their own.
  if (!first.ok() && !HasReason(first.status(), Reason::kStorageError)) return first.status();
  return MakeError(Reason::kNoAtomicCreate,
                   absl::StrCat(root(), ": files cannot be created here without replacing others",
                                first.ok() ? "" : absl::StrCat(": ", first.status().message())),
                   {{"file", root()}});
}

}  // namespace cairn
