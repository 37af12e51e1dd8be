// A storage that counts what is asked of another one.
#ifndef CAIRN_STORE_MIRROR_TESTING_COUNTED_STORAGE_H_
#define CAIRN_STORE_MIRROR_TESTING_COUNTED_STORAGE_H_

#include <atomic>
#include <cstdint>
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
#include "store/storage/storage.h"

namespace cairn {

class CountedStorage : public Storage {
 public:
  // Each call adds one to `calls`. Both must outlive the object.
  CountedStorage(Storage& storage, std::atomic<uint64_t>& calls)
      : Storage(storage.root()), storage_(storage), calls_(calls) {}

  using Storage::PutReplacing;
  using Storage::Sync;

  absl::StatusOr<std::unique_ptr<StoredFile>> Open(std::string_view path, const OpenOptions& options) override {
    return Counted().Open(path, options);
  }
  absl::StatusOr<Content> ReadContent(std::string_view path, uint64_t max_bytes, Cache cache) override {
    return Counted().ReadContent(path, max_bytes, cache);
  }
  bool Exists(std::string_view path) override { return Counted().Exists(path); }
  absl::StatusOr<std::vector<Entry>> List(std::string_view directory) override { return Counted().List(directory); }
  absl::StatusOr<std::vector<std::optional<uint64_t>>> SizesOf(std::string_view directory,
                                                               const std::vector<std::string>& names) override {
    return Counted().SizesOf(directory, names);
  }
  PutResult TryPutIfAbsent(std::string_view path, std::string_view bytes) override {
    return Counted().TryPutIfAbsent(path, bytes);
  }
  absl::Status PutReplacing(std::string_view path, std::span<const std::string_view> pieces) override {
    return Counted().PutReplacing(path, pieces);
  }
  absl::Status MakeDirectories(std::string_view path) override { return Counted().MakeDirectories(path); }
  absl::StatusOr<Put> ClaimDirectory(std::string_view path, const std::string& file, std::string_view bytes) override {
    return Counted().ClaimDirectory(path, file, bytes);
  }
  absl::StatusOr<std::unique_ptr<FileWriter>> Create(std::string_view path, uint64_t header_bytes,
                                                     uint64_t data_bytes) override {
    return Counted().Create(path, header_bytes, data_bytes);
  }
  absl::StatusOr<std::string> ReadOrMakeSecret(std::string_view path) override {
    return Counted().ReadOrMakeSecret(path);
  }
  absl::Status RemoveAll(std::string_view path) override { return Counted().RemoveAll(path); }
  absl::Status RemoveAllOf(std::string_view directory, const std::vector<std::string>& names) override {
    return Counted().RemoveAllOf(directory, names);
  }
  absl::Status RemoveUnfinished(const std::vector<std::string>& directories, absl::Time before) override {
    return Counted().RemoveUnfinished(directories, before);
  }
  std::vector<absl::Status> Sync(const std::vector<std::string>& directories) override {
    return Counted().Sync(directories);
  }
  absl::StatusOr<std::optional<RootHolder>> HolderOfRoot() override { return Counted().HolderOfRoot(); }
  absl::Status ProbeAtomicCreate() override { return Counted().ProbeAtomicCreate(); }
  absl::StatusOr<uint64_t> Refresh() override { return Counted().Refresh(); }

 private:
  absl::StatusOr<std::unique_ptr<RootLock>> LockRoot() override { return Counted().TakeRoot(); }

  Storage& Counted() {
    ++calls_;
    return storage_;
  }

  Storage& storage_;
  std::atomic<uint64_t>& calls_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_TESTING_COUNTED_STORAGE_H_
