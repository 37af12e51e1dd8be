#include "store/open/place.h"

#include <filesystem>
#include <list>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/format/full_name.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/open/open_storage.h"
#include "store/posix/posix_storage.h"
#include "store/s3/s3_address.h"
#include "store/s3/s3_dialect.h"
#include "store/s3/s3_storage.h"

namespace cairn {
namespace {

// Whoever asks may name any number of buckets, and each has connections and threads.
constexpr size_t kMostBuckets = 16;

// A file that keeps its storage, which may be forgotten meanwhile.
class FileOfPlace : public StoredFile {
 public:
  FileOfPlace(std::shared_ptr<Storage> storage, std::unique_ptr<StoredFile> file, Cache cache)
      : StoredFile({file->path(), file->bytes(), file->modified(), file->identity()}, cache),
        storage_(std::move(storage)),
        file_(std::move(file)) {}

  using StoredFile::Read;
  Way Begin(uint64_t offset, uint64_t size) override { return file_->Begin(offset, size); }
  absl::Status Read(Way way, uint64_t offset, uint64_t size, char* to, bool in_place) override {
    return file_->Read(way, offset, size, to, in_place);
  }

 private:
  const std::shared_ptr<Storage> storage_;
  const std::unique_ptr<StoredFile> file_;
};

// An upload that keeps its storage.
class UploadToPlace : public Upload {
 public:
  UploadToPlace(std::shared_ptr<Storage> storage, std::unique_ptr<Upload> upload)
      : storage_(std::move(storage)), upload_(std::move(upload)) {}

  void StopWhen(const std::atomic<bool>& stop) override { upload_->StopWhen(stop); }
  absl::Status Begin() override { return upload_->Begin(); }
  uint64_t PartBytes(int number) const override { return upload_->PartBytes(number); }
  absl::Status Send(int number, std::string_view bytes) override { return upload_->Send(number, bytes); }
  absl::Status Finish() override { return upload_->Finish(); }
  absl::Status Abort() override { return upload_->Abort(); }

 private:
  const std::shared_ptr<Storage> storage_;
  const std::unique_ptr<Upload> upload_;
};

class Storages {
 public:
  absl::StatusOr<std::shared_ptr<Storage>> FileSystem() {
    MutexLock lock(mutex_);
    if (file_system_ == nullptr) {
      CAIRN_ASSIGN_OR_RETURN(file_system_, PosixStorage::Open("/", /*create=*/false));
    }
    return file_system_;
  }

  // `name` is "s3://bucket".
  absl::StatusOr<std::shared_ptr<S3Storage>> Bucket(const std::string& name) {
    std::shared_ptr<S3Storage> forgotten;  // is closed, if nobody uses it, when the lock is free again
    MutexLock lock(mutex_);
    for (auto at = buckets_.begin(); at != buckets_.end(); ++at) {
      if (at->first != name) continue;
      buckets_.splice(buckets_.begin(), buckets_, at);
      return at->second;
    }
    CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<S3Storage> opened, S3Storage::OpenBucket(name, Clock::Real()));
    buckets_.emplace_front(name, opened);
    if (buckets_.size() > kMostBuckets) {
      forgotten = std::move(buckets_.back().second);
      buckets_.pop_back();
    }
    return opened;
  }

 private:
  Mutex mutex_;
  std::shared_ptr<Storage> file_system_ ABSL_GUARDED_BY(mutex_);
  std::list<std::pair<std::string, std::shared_ptr<S3Storage>>> buckets_
      ABSL_GUARDED_BY(mutex_);  // the last used first
};

// It is never destroyed: threads may still read when the process ends.
Storages& Kept() {
  static Storages* const kept = new Storages();
  return *kept;
}

struct PlaceInBucket {
  std::shared_ptr<S3Storage> storage;
  std::string path;
};

// `address` begins with the scheme of an object store.
absl::StatusOr<PlaceInBucket> FindInBucket(const std::string& address) {
  const size_t slash = address.find('/', ObjectSchemeOf(address).size());
  CAIRN_ASSIGN_OR_RETURN(auto storage, Kept().Bucket(address.substr(0, slash)));
  return PlaceInBucket{std::move(storage), slash == address.npos ? "" : address.substr(slash + 1)};
}

}  // namespace

std::string CanonicalNameOf(const std::string& root) {
  std::string name = root;
  if (IsDirectoryRoot(root)) {
    std::error_code error;
    const std::filesystem::path resolved = std::filesystem::weakly_canonical(std::filesystem::absolute(root), error);
    if (!error) name = resolved.string();
  } else if (root.find('?') == root.npos) {
    name = FullNameOf(root).value_or(root);
  }
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  return name;
}

bool LieWithinEachOther(std::string_view one, std::string_view other) {
  const auto is_at_or_below = [](std::string_view place, std::string_view top) {
    return place.starts_with(top) && (place.size() == top.size() || top == "/" || place[top.size()] == '/');
  };
  return is_at_or_below(one, other) || is_at_or_below(other, one);
}

absl::StatusOr<std::string> FullNameOf(std::string_view text) {
  const std::string name(text);
  if (IsDirectoryRoot(text)) {
    if (text.starts_with('/') && text.find('\0') == text.npos) return name;
    return MakeError(
        Reason::kBadRequest,
        absl::StrCat("an absolute path, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX is needed, not '", name, "'"),
        {{"next", "Give the path from / on; the coordinator and all agents must see it. Or give an address."}});
  }
  const S3Dialect* const dialect = DialectOf(text);
  if (const size_t question = text.find('?'); dialect != nullptr && question != text.npos) {
    const char* const region = dialect->region_header.empty() ? "" : " and AWS_REGION";
    return MakeError(Reason::kBadRequest,
                     absl::StrCat(name, " has options behind its \"?\", which only a root may have"),
                     {{"next", absl::StrCat("Give ", name.substr(0, question), ", and set ",
                                            dialect->endpoint_variables.front(), region, " where needed.")}});
  }
  CAIRN_ASSIGN_OR_RETURN(const S3Address address, ParseS3Root(text, FromEnvironment));
  std::string whole = address.NameOf(address.prefix);
  whole.pop_back();
  return whole;
}

absl::StatusOr<Place> FindPlace(const std::string& full_name) {
  if (ObjectSchemeOf(full_name).empty()) {
    if (!full_name.starts_with('/')) return FullNameOf(full_name).status();
    CAIRN_ASSIGN_OR_RETURN(auto storage, Kept().FileSystem());
    return Place{std::move(storage), full_name.substr(1)};
  }
  CAIRN_ASSIGN_OR_RETURN(PlaceInBucket place, FindInBucket(full_name));
  return Place{std::move(place.storage), std::move(place.path)};
}

absl::StatusOr<std::unique_ptr<StoredFile>> OpenAnywhere(const std::string& full_name, const OpenOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(Place place, FindPlace(full_name));
  CAIRN_ASSIGN_OR_RETURN(auto file, place.storage->Open(place.path, options));
  return std::make_unique<FileOfPlace>(std::move(place.storage), std::move(file), options.cache);
}

absl::StatusOr<std::unique_ptr<Upload>> NewUploadTo(const std::string& full_name) {
  if (ObjectSchemeOf(full_name).empty()) {
    return MakeError(Reason::kBadRequest, absl::StrCat(full_name, " is no address in an object store"),
                     {{"file", full_name}, {"next", "Give s3://BUCKET/KEY or gs://BUCKET/KEY."}});
  }
  CAIRN_ASSIGN_OR_RETURN(PlaceInBucket place, FindInBucket(full_name));
  CAIRN_ASSIGN_OR_RETURN(auto upload, place.storage->NewUpload(place.path));
  return std::make_unique<UploadToPlace>(std::move(place.storage), std::move(upload));
}

}  // namespace cairn
