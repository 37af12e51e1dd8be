// A root of checkpoints on a POSIX file system: local, or shared by network.
#ifndef CAIRN_STORE_POSIX_POSIX_STORAGE_H_
#define CAIRN_STORE_POSIX_POSIX_STORAGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/file/confined_directory.h"
#include "common/file/secret_file.h"
#include "store/posix/posix_calls.h"
#include "store/posix/posix_facts.h"
#include "store/storage/storage.h"

namespace cairn {

// Errors have the reasons of errno_error.h. Records are put by WriteAtomically (common/file/atomic_write.h).
class PosixStorage : public Storage {
 public:
  // Opens a root directory; with `create` it makes the directory first (whose parent must exist). Fails as
  // ConfinedDirectory::Open.
  static absl::StatusOr<std::unique_ptr<PosixStorage>> Open(const std::string& root, bool create,
                                                            PosixCalls calls = {});

  // Returns the root's directory, for operations that only a file system has.
  ConfinedDirectory& directory() const { return *directory_; }

  using Storage::PutReplacing;
  using Storage::Sync;

  absl::StatusOr<std::unique_ptr<StoredFile>> Open(std::string_view path, const OpenOptions& options = {}) override;
  bool Exists(std::string_view path) override { return directory_->Exists(path); }
  absl::StatusOr<std::vector<Entry>> List(std::string_view directory) override;
  absl::StatusOr<std::vector<std::optional<uint64_t>>> SizesOf(std::string_view directory,
                                                               const std::vector<std::string>& names) override {
    return directory_->SizesOf(directory, names);
  }

  PutResult TryPutIfAbsent(std::string_view path, std::string_view bytes) override {
    return directory_->TryPutIfAbsent(path, bytes);
  }
  absl::Status PutReplacing(std::string_view path, std::span<const std::string_view> pieces) override {
    return directory_->PutReplacing(path, pieces);
  }
  absl::Status MakeDirectories(std::string_view path) override { return directory_->MakeDirectories(path); }
  absl::StatusOr<Put> ClaimDirectory(std::string_view path, const std::string& file, std::string_view bytes) override {
    return directory_->MakeDirectoryExclusive(path, file, bytes);
  }
  absl::StatusOr<std::unique_ptr<FileWriter>> Create(std::string_view path, uint64_t header_bytes,
                                                     uint64_t data_bytes) override;
  absl::StatusOr<std::string> ReadOrMakeSecret(std::string_view path) override {
    return cairn::ReadOrMakeSecret(*directory_, path);
  }

  absl::Status RemoveAll(std::string_view path) override { return directory_->RemoveAll(path); }
  absl::Status RemoveAllOf(std::string_view directory, const std::vector<std::string>& names) override {
    return directory_->RemoveAllOf(directory, names);
  }
  absl::Status RemoveUnfinished(const std::vector<std::string>& directories, absl::Time before) override;
  std::vector<absl::Status> Sync(const std::vector<std::string>& directories) override {
    return directory_->SettleDirectories(directories);
  }

  absl::StatusOr<std::optional<RootHolder>> HolderOfRoot() override;
  absl::Status ProbeAtomicCreate() override;
  StorageFacts Facts() override { return FactsOf(*directory_); }
  absl::StatusOr<uint64_t> Refresh() override { return directory_->Refresh(); }

 private:
  PosixStorage(std::unique_ptr<ConfinedDirectory> directory, PosixCalls calls)
      : Storage(directory->path()), directory_(std::move(directory)), calls_(std::move(calls)) {}

  absl::StatusOr<std::unique_ptr<RootLock>> LockRoot() override;

  const std::unique_ptr<ConfinedDirectory> directory_;
  const PosixCalls calls_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_POSIX_POSIX_STORAGE_H_
