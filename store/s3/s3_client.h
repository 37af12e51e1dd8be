// The requests that a storage makes of an object store.
#ifndef CAIRN_STORE_S3_S3_CLIENT_H_
#define CAIRN_STORE_S3_S3_CLIENT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/file/put_result.h"
#include "store/s3/s3_address.h"
#include "store/s3/s3_listing.h"
#include "store/s3/s3_object.h"
#include "store/s3/s3_requester.h"
#include "store/s3/s3_uploads.h"

namespace cairn {

// Thread-safe. Methods block. All of them may fail with UNAVAILABLE (STORAGE_ERROR): the store did not answer, or with
// an error; FAILED_PRECONDITION (STORAGE_READ_ONLY): it denies access; RESOURCE_EXHAUSTED (NO_SPACE): a quota is full;
// DATA_LOSS (FILE_MISSING): there is no such key; NOT_FOUND (ROOT_MISSING): there is no such bucket (Head cannot
// tell that). A message names
// bucket, key, the store's id of the request, and the last answer.
class S3Client {
 public:
  using Options = S3Requester::Options;
  static absl::StatusOr<std::unique_ptr<S3Client>> Open(const S3Address& address, const Clock& clock,
                                                        const Options& options = {});

  // Puts an object. With `if_absent` it replaces none, and kExists says that another stands there; an answer that was
  // lost is found out by looking, so that one's own object counts as kCreated.
  PutResult PutObject(const std::string& key, std::string_view bytes, bool if_absent);

  absl::StatusOr<S3Object> Head(const std::string& key);
  // Reads a whole object. If the store has its checksum, bytes that differ are read anew; those that stay so are
  // returned, and the caller's own checksum finds them. RESOURCE_EXHAUSTED (MESSAGE_TOO_LARGE): it has more than
  // `max_bytes`; (MEMORY_LIMIT).
  absl::StatusOr<S3Content> Fetch(const std::string& key, uint64_t max_bytes);
  // Reads the first `most` bytes of an object, or all if it has fewer. S3Object::bytes is the length of the whole.
  absl::StatusOr<S3Content> FetchBegin(const std::string& key, uint64_t most);
  // Reads [offset, offset + size) to `to`, of the object with this ETag; DATA_LOSS (BAD_FOREIGN_FILE): another one
  // stands there, (FILE_TRUNCATED): it ends before.
  // Once `stop` (which may be null) is true, it is given up soon.
  absl::Status Get(const std::string& key, const std::string& etag, uint64_t offset, uint64_t size, char* to,
                   const std::atomic<bool>* stop = nullptr);

  // Lists the keys that begin with `prefix` and lie behind `after`, in their order; with `by_directory` those with a
  // further slash come as one. At most `most`. A listing that ends before it is whole is UNAVAILABLE (STORAGE_ERROR).
  absl::StatusOr<std::vector<S3Listed>> List(const std::string& prefix, bool by_directory,
                                             const std::string& after = "", size_t most = SIZE_MAX);
  // Deletes keys; absent ones are fine. After an error some may be deleted.
  absl::Status Delete(const std::vector<std::string>& keys);

  S3Uploads& uploads() { return uploads_; }

  const S3Address& address() const { return requester_.address(); }
  // While this is set, a request that fails is given up within seconds, because its process is about to end.
  void SetHurried(bool hurried) { requester_.SetHurried(hurried); }
  // How many requests may be under way at a time.
  int connections() const { return requester_.options().wire.connections; }

 private:
  S3Client(const S3Address& address, const Clock& clock, const Options& options, std::unique_ptr<S3Wire> wire)
      : requester_(address, clock, options, std::move(wire)), uploads_(requester_) {}

  // Deletes at most 1,000 keys, by one request, or by one for each key on so many threads if the store does not know
  // the other one. Those that it may delete at another try go to `refused`, and why to `error`.
  absl::Status DeleteSome(const std::vector<std::string>& keys, int threads, std::vector<std::string>& refused,
                          absl::Status& error);

  S3Requester requester_;
  S3Uploads uploads_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_CLIENT_H_
