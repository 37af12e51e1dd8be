// Reads the records that end attempts: outcomes, repaired manifests and deletions. It remembers what they say.
#ifndef CAIRN_STORE_READ_ATTEMPT_RECORDS_H_
#define CAIRN_STORE_READ_ATTEMPT_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/format/manifest.h"
#include "common/format/outcome.h"
#include "store/read/stored_attempt.h"
#include "store/storage/storage.h"

namespace cairn {

// Larger outcomes are not read.
inline constexpr uint64_t kMaxOutcomeBytes = uint64_t{1} << 30;

// Only reads, but for KeepIndex. Thread-safe; every method blocks on storage. A record that was read, damaged or not,
// is remembered by the identity of its file, so a file that was written anew is read anew. A record counts as damaged
// if it was read twice, the second time past all caches, and gave the same bytes. If it gave other bytes, that is a
// STORAGE_ERROR, which is not remembered.
class AttemptRecords {
 public:
  // A job of fewer steps has no index, and an index that lacks fewer records is not written anew: to read so many takes
  // as long as one listing and one read, because they are read at once.
  static constexpr size_t kIndexAfter = 64;

  // What is known of the files in a step's directory without reading them.
  class Listing {
   public:
    // Nothing is known.
    Listing() = default;
    // `exact`: Storage::ListsExactly. `entries` must outlive this object.
    Listing(const std::vector<Storage::Entry>& entries, bool exact) : entries_(&entries), exact_(exact) {}

    // Returns true if there is certainly no such file. `path` lies in the directory.
    bool Lacks(std::string_view path) const { return exact_ && Find(path) == nullptr; }
    // Returns the identity of a file; empty if it is not known.
    std::string IdentityOf(std::string_view path) const;

   private:
    const Storage::Entry* Find(std::string_view path) const;

    const std::vector<Storage::Entry>* entries_ = nullptr;
    bool exact_ = false;
  };

  // `storage` must outlive the object.
  explicit AttemptRecords(Storage& storage) : storage_(storage) {}

  // Reads the record of one attempt. StoredAttempt::directory is not set. What cannot be read counts as damaged.
  StoredAttempt Read(std::string_view job, int64_t step, uint32_t attempt, const Listing& listing);
  // Reads all of the manifest at `path`, an outcome or a repaired manifest of the attempt. NOT_FOUND (NOT_COMMITTED):
  // it is no manifest. DATA_LOSS (MANIFEST_CORRUPT, FILE_MISSING), FAILED_PRECONDITION (FORMAT_TOO_NEW). Else the
  // errors of storage.
  absl::StatusOr<Manifest> ReadManifest(std::string_view job, int64_t step, uint32_t attempt, const std::string& path);
  // Returns the bytes of the same, after a look at their checksum. Fails as ReadManifest.
  absl::StatusOr<std::string> ReadBytes(const std::string& path);

  // Remembers what the index of the job's records says (record_index.h), once.
  void ReadIndex(std::string_view job);
  // Writes that index, if the storage lists names with identities, and so many records have been read since the last
  // index that another one is worth it. An error is ignored: the index only saves time.
  void KeepIndex(const std::string& job);

 private:
  absl::StatusOr<StoredAttempt> ReadRecord(std::string_view job, int64_t step, uint32_t attempt,
                                           const std::string& path, const Listing& listing);
  // Returns the attempt as its deletion record describes it; nothing if it has none. If the deletion record cannot be
  // read, the attempt counts as damaged, because nobody knows what is left of it.
  std::optional<StoredAttempt> ReadDeletion(std::string_view job, int64_t step, uint32_t attempt,
                                            const Listing& listing);
  // Sets `known` to the remembered record of the file at `path`, if the file is still the same; else returns its
  // content. DATA_LOSS (FILE_MISSING): there is no such file.
  absl::StatusOr<Storage::Content> LookAt(const std::string& path, const Listing& listing,
                                          std::optional<StoredAttempt>& known);
  // Returns the remembered record of the file at `path`, if the file has this identity.
  std::optional<StoredAttempt> Known(const std::string& path, const std::string& identity);
  bool IsKnown(const std::string& path);
  void Remember(std::string_view job, const std::string& path, const StoredAttempt& record);
  // `first` is what Storage::ReadContent has returned for the file. Returns its outcome, and sets `identity` to that of
  // the bytes that were decoded.
  absl::StatusOr<Outcome> DecodeSurely(std::string_view job, int64_t step, uint32_t attempt, const std::string& path,
                                       absl::StatusOr<Storage::Content> first, std::string& identity);
  // Returns a content that `take` accepts: `first`, or what a second read gives, if the first was cut off or `take`
  // said MANIFEST_CORRUPT.
  absl::StatusOr<Storage::Content> ReadSurely(const std::string& path, absl::StatusOr<Storage::Content> first,
                                              const std::function<absl::Status(const std::string& bytes)>& take);

  Storage& storage_;
  Mutex mutex_;
  std::map<std::string, StoredAttempt> known_ ABSL_GUARDED_BY(mutex_);  // by path
  // By job, how many of these its index does not have; a job is here once its index was read.
  std::map<std::string, size_t, std::less<>> not_indexed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_STORE_READ_ATTEMPT_RECORDS_H_
