// Large objects, which come to a store in parts.
#ifndef CAIRN_STORE_S3_S3_UPLOADS_H_
#define CAIRN_STORE_S3_S3_UPLOADS_H_

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/file/put_result.h"
#include "store/s3/s3_requester.h"
#include "store/s3/s3_xml.h"

namespace cairn {

// An upload that was neither completed nor aborted.
struct S3UnfinishedUpload {
  std::string key;
  std::string id;
  absl::Time begun;
};

// Thread-safe. Methods block, and fail as S3Client says. Once a `stop` (which may be null) is true, the request is
// given up soon.
class S3Uploads {
 public:
  // `requester` must outlive the object.
  explicit S3Uploads(S3Requester& requester) : requester_(requester) {}

  // Returns the id of a new upload. `writer` is a word by which Complete knows its own object.
  absl::StatusOr<std::string> Begin(const std::string& key, const std::string& writer,
                                    const std::atomic<bool>* stop = nullptr);
  // All parts but the last one have at least 5 MiB. A part may be sent again.
  absl::StatusOr<S3Part> PutPart(const std::string& key, const std::string& upload, int number, std::string_view bytes,
                                 const std::atomic<bool>* stop = nullptr);
  // Makes the object of its parts. With `if_absent` it replaces none, if the store has a condition for that. kExists:
  // another one stands there: it was left, or without `if_absent` it has replaced this one.
  absl::StatusOr<Put> Complete(const std::string& key, const std::string& upload, const std::vector<S3Part>& parts,
                               const std::string& writer, bool if_absent);
  absl::Status Abort(const std::string& key, const std::string& upload, const std::atomic<bool>* stop = nullptr);
  // Lists the unfinished uploads to keys that begin with `prefix`.
  absl::StatusOr<std::vector<S3UnfinishedUpload>> List(const std::string& prefix);

 private:
  S3Requester& requester_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_UPLOADS_H_
