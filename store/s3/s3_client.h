// The requests that a storage makes of an object store. Each is sent until the store has answered it, or until nothing
// has come of it for too long.
#ifndef CAIRN_STORE_S3_S3_CLIENT_H_
#define CAIRN_STORE_S3_S3_CLIENT_H_

#include <atomic>
#include <cstdint>
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
  // A request that fails is sent again for so long after the client's last success, and ten times as long in all. Once
  // nothing has succeeded for so long, later requests are tried for some seconds only.
  absl::Duration patience = absl::Seconds(120);
  // The same until the store has first accepted the credentials: they, or the address, may be wrong.
  absl::Duration first_patience = absl::Seconds(20);
  // The same as long as nothing has ever been sent, because no connection could be made.
  absl::Duration connect_patience = absl::Seconds(5);
};

// What a store says about an object.
struct S3Object {
  uint64_t bytes = 0;
  absl::Time modified;
  absl::Time now;      // by the clock of the store, when it answered
  std::string etag;    // tells this object from all that had its key before
  std::string writer;  // the word with which it was put, or empty
};

struct S3Content {
  S3Object object;
  std::string bytes;
};

// Thread-safe. Methods block. All of them may fail with UNAVAILABLE (STORAGE_ERROR): the store did not answer, or with
// an error; FAILED_PRECONDITION (STORAGE_READ_ONLY): it denies access; RESOURCE_EXHAUSTED (NO_SPACE): a quota is full;
// DATA_LOSS (FILE_MISSING): there is no such key; NOT_FOUND (ROOT_MISSING): there is no such bucket (Head cannot
// tell that). A message names
// bucket, key, the store's id of the request, and the last answer.
class S3Client {
 public:
  using Options = S3ClientOptions;
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

  struct Listed {
    std::string name;  // the key
    uint64_t bytes = 0;
    std::string etag;     // S3Object::etag
    bool prefix = false;  // keys that begin so, up to the next slash
  };
  // Lists the keys that begin with `prefix` and lie behind `after`, in their order; with `by_directory` those with a
  // further slash come as one. At most `most`. A listing that ends before it is whole is UNAVAILABLE (STORAGE_ERROR).
  absl::StatusOr<std::vector<Listed>> List(const std::string& prefix, bool by_directory, const std::string& after = "",
                                           size_t most = SIZE_MAX);
  // Deletes keys; absent ones are fine. After an error some may be deleted.
  absl::Status Delete(const std::vector<std::string>& keys);

  // Large objects come in parts. `writer` is a word by which Complete knows its own object. Once a `stop` (which may be
  // null) is true, the request is given up soon.
  absl::StatusOr<std::string> BeginUpload(const std::string& key, const std::string& writer,
                                          const std::atomic<bool>* stop = nullptr);
  // All parts but the last one have at least 5 MiB. A part may be sent again.
  absl::StatusOr<S3Part> PutPart(const std::string& key, const std::string& upload, int number, std::string_view bytes,
                                 const std::atomic<bool>* stop = nullptr);
  // Makes the object of its parts. With `if_absent` it replaces none. kExists: another one stands there: it was left,
  // or without `if_absent` it has replaced this one.
  absl::StatusOr<Put> Complete(const std::string& key, const std::string& upload, const std::vector<S3Part>& parts,
                               const std::string& writer, bool if_absent);
  absl::Status Abort(const std::string& key, const std::string& upload, const std::atomic<bool>* stop = nullptr);
  struct Upload {
    std::string key;
    std::string id;
    absl::Time begun;
  };
  // Lists the uploads to keys that begin with `prefix` which were neither completed nor aborted.
  absl::StatusOr<std::vector<Upload>> Uploads(const std::string& prefix);

  const S3Address& address() const { return address_; }
  // While this is set, a request that fails is given up within seconds, because its process is about to end.
  void SetHurried(bool hurried);
  // How many requests may be under way at a time.
  int connections() const { return options_.wire.connections; }

 private:
  S3Client(const S3Address& address, const Clock& clock, const Options& options, std::unique_ptr<S3Wire> wire)
      : address_(address),
        clock_(clock),
        options_(options),
        wire_(std::move(wire)),
        window_(options.wire.connections) {}

  // The last answer to a request.
  struct Reply {
    S3Answer answer;
    std::optional<S3Xml> xml;  // the answer's body, if it is XML
    std::string code;          // of an error: "NoSuchKey"
    std::string message;       // of an error
    bool in_doubt = false;     // an earlier try may have done what was asked
    bool final = false;        // false: it was given up

    bool done() const;  // the store has done what was asked
  };
  // Sends a request until an answer is final, or it is given up.
  Reply Ask(const S3Request& request);
  // Returns how long a request is tried that begins at a time.
  absl::Duration PatienceAt(absl::Time begun);
  // Waits before the next try of what has failed `attempt` times, unless `stop` (which may be null) becomes true.
  void BackOff(int attempt, const std::atomic<bool>* stop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits for room in the window.
  void Enter();
  void Leave(S3Verdict verdict, int status);
  // Says "s3://bucket/key".
  std::string NameOf(std::string_view key) const;
  absl::Status ErrorOf(const S3Request& request, const Reply& reply) const;
  // Says what to do about an answer that no store gives.
  std::string NextIfNoStore() const;
  // Makes the error that the store's answer lacks something: "an ETag".
  absl::Status Lacks(const S3Request& request, std::string_view what) const;
  // Returns the XML of a good answer. UNAVAILABLE (STORAGE_ERROR): it is no XML of this name; a proxy may have
  // answered.
  absl::StatusOr<S3Xml> AskForXml(const S3Request& request, std::string_view name);
  absl::StatusOr<S3Object> ObjectIn(const S3Request& request, const Reply& reply) const;
  // Looks whether the object with the word `writer` has the key, because `reply` does not say what became of it.
  absl::StatusOr<Put> WhatStands(const S3Request& request, const Reply& reply, const std::string& writer);
  // Deletes at most 1,000 keys. Those that the store may delete at another try go to `refused`, and why to `error`.
  absl::Status DeleteSome(const std::vector<std::string>& keys, std::vector<std::string>& refused, absl::Status& error);

  const S3Address address_;
  const Clock& clock_;
  const Options options_;
  const std::unique_ptr<S3Wire> wire_;
  Mutex mutex_;
  CondVar changed_;
  S3Window window_ ABSL_GUARDED_BY(mutex_);
  int under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  // When the store last answered a request of credentials that it knows.
  absl::Time last_answer_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  // Since when no request has had such an answer.
  absl::Time failing_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool hurried_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_CLIENT_H_
