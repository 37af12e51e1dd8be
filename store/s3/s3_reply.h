// The last answer of a store to a request, and the error that it means. Functions of the answer.
#ifndef CAIRN_STORE_S3_S3_REPLY_H_
#define CAIRN_STORE_S3_S3_REPLY_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/status/reason.h"
#include "store/s3/s3_address.h"
#include "store/s3/s3_wire.h"
#include "store/s3/s3_xml.h"

namespace cairn {

struct S3Reply {
  S3Answer answer;
  std::optional<S3Xml> xml;  // the answer's body, if it is XML
  std::string code;          // of an error: "NoSuchKey"
  std::string message;       // of an error
  bool in_doubt = false;     // an earlier try may have done what was asked
  bool final = false;        // false: it was given up

  // Takes the answer to a try, and reads its body if that is the store's own words.
  void Take(S3Answer taken, bool content);
  bool done() const;  // the store has done what was asked
};

// Says what an error of the store means, by its status of HTTP, or by the code of an error for one key of many. `bare`:
// the store has answered without words.
Reason ReasonFor(int status, std::string_view code, bool bare = false);

// Makes the error of a reply that is not done. Its message names bucket, key, the store's id of the request, and the
// answer.
absl::Status ErrorOf(const S3Address& address, const S3Request& request, const S3Reply& reply);

// Makes the error that the store's answer lacks something: "an ETag".
absl::Status Lacks(const S3Address& address, const S3Request& request, std::string_view what);

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_REPLY_H_
