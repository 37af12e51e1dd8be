// What a store says about an object: the headers of an answer.
#ifndef CAIRN_STORE_S3_S3_OBJECT_H_
#define CAIRN_STORE_S3_S3_OBJECT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "store/s3/s3_address.h"
#include "store/s3/s3_dialect.h"
#include "store/s3/s3_reply.h"
#include "store/s3/s3_wire.h"

namespace cairn {

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

// Reads the answer to a HEAD or GET. Fails as ErrorOf and Lacks.
absl::StatusOr<S3Object> ObjectIn(const S3Address& address, const S3Request& request, const S3Reply& reply);

// Says whether a whole object has the checksum that the store gave along, if it gave one of the whole.
bool HasItsChecksum(const S3Dialect& dialect, const S3Answer& answer);

// Reads a time as stores write it: "Sun, 06 Nov 1994 08:49:37 GMT" or "1994-11-06T08:49:37.000Z".
std::optional<absl::Time> TimeOf(const std::string& text);

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_OBJECT_H_
