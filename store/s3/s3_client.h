// The requests that a storage makes of an object store. Each is sent until the store has answered it, or until nothing
// has come of it for too long.
#ifndef CAIRN_STORE_S3_S3_CLIENT_H_
#define CAIRN_STORE_S3_S3_CLIENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/file/put_result.h"
#include "store/s3/s3_pace.h"
#include "store/s3/s3_wire.h"
#include "store/s3/s3_xml.h"

namespace cairn {

struct S3ClientOptions {
  S3Wire::Options wire;
  // A request that fails is sent again for so long after the client's last success, and ten times as long in all.
  absl::Duration patience = absl::Seconds(120);
  // The same before the first success, because the address or the credentials may be wrong.
  absl::Duration first_patience = absl::Seconds(20);
};

// What a store says about an object.
struct S3Object {
  uint64_t bytes = 0;
  absl::Time modified;
  absl::Time now;      // by the clock of the store, when it answered
  std::string etag;    // tells this object from all that had its key before
  std::string writer;  // the word with which it was put, or empty
};

// Thread-safe. Methods block. All of them may fail with UNAVAILABLE (STORAGE_ERROR): the store did not answer, or with
// an error; FAILED_PRECONDITION (STORAGE_READ_ONLY): it denies access; RESOURCE_EXHAUSTED (NO_SPACE): a quota is full;
// DATA_LOSS (FILE_MISSING): there is no such key; NOT_FOUND (ROOT_MISSING): there is no such bucket. A message names
// bucket, key, the store's id of the request, and the last answer.
class S3Client {
 public:
  using Options = S3ClientOptions;
  static absl::StatusOr<std::unique_ptr<S3Client>> Open(const S3Address& address, const Clock& clock,
                                                        const Options& options = {});

  // Puts an object. With `if_absent` it replaces none, and kExists says that another stands there; an answer that was
  // lost is found out by looking, so that one's own object counts as kCreated. `now`, if it is not null, gets the
  // time of the store.
  PutResult PutObject(const std::string& key, std::string_view bytes, bool if_absent, absl::Time* now = nullptr);

  absl::StatusOr<S3Object> Head(const std::string& key);
  // Reads [offset, offset + size) to `to`, of the object with this ETag; DATA_LOSS (BAD_FOREIGN_FILE): another one
  // stands there, (FILE_TRUNCATED): it ends before.
  absl::Status Get(const std::string& key, const std::string& etag, uint64_t offset, uint64_t size, char* to);

  struct Listed {
    std::string name;  // the key
    uint64_t bytes = 0;
    absl::Time modified;
    bool prefix = false;  // keys that begin so, up to the next slash
  };
  // Lists the keys that begin with `prefix` and lie behind `after`, in their order; with `by_directory` those with a
  // further slash come as one. At most `most`.
  absl::StatusOr<std::vector<Listed>> List(const std::string& prefix, bool by_directory, const std::string& after = "",
                                           size_t most = SIZE_MAX);
  // Deletes keys; absent ones are fine.
  absl::Status Delete(const std::vector<std::string>& keys);

  // Large objects come in parts. `writer` is a word by which Complete knows its own object.
  absl::StatusOr<std::string> BeginUpload(const std::string& key, const std::string& writer);
  // All parts but the last one have at least 5 MiB. A part may be sent again.
  absl::StatusOr<S3Part> PutPart(const std::string& key, const std::string& upload, int number, std::string_view bytes);
  // Makes the object of its parts. kExists: another one stands there, and was left.
  absl::StatusOr<Put> Complete(const std::string& key, const std::string& upload, const std::vector<S3Part>& parts,
                               const std::string& writer);
  absl::Status Abort(const std::string& key, const std::string& upload);
  struct Upload {
    std::string key;
    std::string id;
    absl::Time begun;
  };
  // Lists the uploads to keys that begin with `prefix` which were neither completed nor aborted.
  absl::StatusOr<std::vector<Upload>> Uploads(const std::string& prefix);

  const S3Address& address() const { return address_; }

 private:
  S3Client(const S3Address& address, const Clock& clock, const Options& options, std::unique_ptr<S3Wire> wire)
      : address_(address),
        clock_(clock),
        options_(options),
        wire_(std::move(wire)),
        window_(options.wire.connections) {}

  struct Final {
    S3Answer answer;
    std::string code;       // of an error: "NoSuchKey"
    std::string message;    // of an error
    bool in_doubt = false;  // an earlier try may have done what was asked
    bool given_up = false;  // no final answer came
  };
  // Sends a request until an answer is final.
  Final Ask(const S3Request& request);
  // Waits for room in the window.
  void Enter();
  void Leave(S3Verdict verdict);
  absl::Status ErrorOf(const S3Request& request, const Final& final) const;
  absl::StatusOr<S3Xml> AskForXml(const S3Request& request);

  const S3Address address_;
  const Clock& clock_;
  const Options options_;
  const std::unique_ptr<S3Wire> wire_;
  Mutex mutex_;
  CondVar changed_;
  S3Window window_ ABSL_GUARDED_BY(mutex_);
  int under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time last_success_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_CLIENT_H_
