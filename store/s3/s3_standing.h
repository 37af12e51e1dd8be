// Finds out what stands in a store, after an answer was lost.
#ifndef CAIRN_STORE_S3_S3_STANDING_H_
#define CAIRN_STORE_S3_S3_STANDING_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/file/put_result.h"
#include "store/s3/s3_object.h"
#include "store/s3/s3_reply.h"
#include "store/s3/s3_requester.h"
#include "store/s3/s3_wire.h"

namespace cairn {

// Asks for what a store says about an object. Fails as S3Client says.
absl::StatusOr<S3Object> HeadObject(S3Requester& requester, const std::string& key);

// Looks whether the object that has the key of `request` has the word `writer`, because `reply` does not say what
// became of the request. kCreated: it is one's own. The error of `reply`: nothing stands there. Else as HeadObject.
absl::StatusOr<Put> WhatStands(S3Requester& requester, const S3Request& request, const S3Reply& reply,
                               const std::string& writer);

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_STANDING_H_
