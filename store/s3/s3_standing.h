// Finds out what stands in a store, after an answer was lost.
#ifndef CAIRN_STORE_S3_S3_STANDING_H_
#define CAIRN_STORE_S3_S3_STANDING_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/file/put_result.h"
#include "store/s3/s3_object.h"
#include "store/s3/s3_requester.h"

namespace cairn {

// Asks for what a store says about an object. Fails as S3Client says.
absl::StatusOr<S3Object> HeadObject(S3Requester& requester, const std::string& key);

// Looks whose object stands under a key, because an answer does not say what became of a request. kCreated: it has the
// word `writer`, so it is one's own. kExists: it is another's. Nothing: there is none. Else as HeadObject.
absl::StatusOr<std::optional<Put>> WhoseStands(S3Requester& requester, const std::string& key,
                                               const std::string& writer);

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_STANDING_H_
