// A root of checkpoints in an object store that speaks the XML of S3: Amazon's, Google's and others.
#ifndef CAIRN_STORE_S3_S3_STORAGE_H_
#define CAIRN_STORE_S3_S3_STORAGE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "store/s3/s3_client.h"
#include "store/storage/storage.h"
#include "store/storage/upload.h"

namespace cairn {

// A file is one object, a directory is only what the keys have in common. What a store has answered is durable and seen
// by all, so Sync has nothing to do. docs/decisions/object_stores.md says what is asked of a store.
class S3Storage : public Storage {
 public:
  using Options = S3Client::Options;
  // Opens "s3://bucket/prefix" or "gs://bucket/prefix" (ParseS3Root). The bucket must stand; without `create` there
  // must be something below the prefix. NOT_FOUND (ROOT_MISSING): that is not so. Else the errors of ParseS3Root,
  // S3Wire::Open and S3Client.
  static absl::StatusOr<std::unique_ptr<S3Storage>> Open(const std::string& root, bool create, const Clock& clock,
                                                         const Options& options = {});

  // Opens all of a bucket, "s3://bucket", for files that are in no root. It makes no request, so only the first one
  // finds out whether there is such a bucket. Fails as ParseS3Root and S3Wire::Open.
  static absl::StatusOr<std::unique_ptr<S3Storage>> OpenBucket(const std::string& name, const Clock& clock,
                                                               const Options& options = {});

  using Storage::PutReplacing;
  using Storage::Sync;

  absl::StatusOr<std::unique_ptr<StoredFile>> Open(std::string_view path, const OpenOptions& options = {}) override;
  // One request.
  absl::StatusOr<Content> ReadContent(std::string_view path, uint64_t max_bytes, Cache cache) override;
  bool Exists(std::string_view path) override;
  absl::StatusOr<std::vector<Entry>> List(std::string_view directory) override;
  // One request lists some hundred files, of several directories if they are small.
  std::vector<absl::StatusOr<std::vector<Entry>>> ListEach(std::string_view parent,
                                                           const std::vector<std::string>& names) override;
  bool ListsExactly() const override { return true; }
  int CallsAtOnce() const override { return client_->connections(); }
  absl::StatusOr<std::vector<std::optional<uint64_t>>> SizesOf(std::string_view directory,
                                                               const std::vector<std::string>& names) override;

  PutResult TryPutIfAbsent(std::string_view path, std::string_view bytes) override;
  absl::Status PutReplacing(std::string_view path, std::span<const std::string_view> pieces) override;
  absl::Status MakeDirectories(std::string_view path) override { return KeyOf(path).status(); }
  absl::StatusOr<Put> ClaimDirectory(std::string_view path, const std::string& file, std::string_view bytes) override;
  absl::StatusOr<std::unique_ptr<FileWriter>> Create(std::string_view path, uint64_t header_bytes,
                                                     uint64_t data_bytes) override;
  // Makes ready to write an object whose length nobody knows yet. It asks nothing of the store. This storage must
  // outlive the upload. Fails as Create.
  absl::StatusOr<std::unique_ptr<Upload>> NewUpload(std::string_view path);
  // Whoever may read the bucket can read it.
  absl::StatusOr<std::string> ReadOrMakeSecret(std::string_view path) override;

  absl::Status RemoveAll(std::string_view path) override;
  absl::Status RemoveAllOf(std::string_view directory, const std::vector<std::string>& names) override;
  // One listing, and one request for each file that is removed.
  absl::Status RemoveUnfinished(const std::vector<std::string>& directories, absl::Time before) override;
  std::vector<absl::Status> Sync(const std::vector<std::string>& directories) override {
    return std::vector<absl::Status>(directories.size());
  }

  absl::Duration LockOutlivesHolder() const override;
  absl::StatusOr<std::optional<RootHolder>> HolderOfRoot() override;
  // The message names the store if it takes a condition and does not keep it.
  absl::Status ProbeAtomicCreate() override;
  StorageFacts Facts() override;
  // Nothing is mounted here.
  absl::StatusOr<uint64_t> Refresh() override { return 0; }

 private:
  S3Storage(std::string root, std::unique_ptr<S3Client> client)
      : Storage(std::move(root)), client_(std::move(client)) {}

  absl::StatusOr<std::unique_ptr<RootLock>> LockRoot() override;
  // Aborts the uploads to keys that begin with `prefix` for which `wanted` returns true. Returns the first error.
  absl::Status AbortUploads(const std::string& prefix, absl::FunctionRef<bool(const S3UnfinishedUpload&)> wanted);
  absl::StatusOr<std::string> KeyOf(std::string_view path) const;
  // The beginning of all keys in a directory, "" for the root.
  absl::StatusOr<std::string> PrefixOf(std::string_view directory) const;

  // Says that a directory is empty.
  absl::Status NoObjects(std::string_view directory) const;

  const std::unique_ptr<S3Client> client_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_STORAGE_H_
