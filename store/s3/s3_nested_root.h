// Looks whether a root in an object store lies within another one, or around one. posix/nested_root.h does so for
// directories.
#ifndef CAIRN_STORE_S3_S3_NESTED_ROOT_H_
#define CAIRN_STORE_S3_S3_NESTED_ROOT_H_

#include "absl/status/status.h"
#include "store/s3/s3_client.h"

namespace cairn {

// Records of this directory make a prefix a root.
inline constexpr char kS3Epochs[] = ".cairn/epochs/";

// INVALID_ARGUMENT (BAD_REQUEST): the root lies within another one, which would take its files for those of a job. It
// makes one request for each name in the root's prefix.
absl::Status CheckNotWithin(S3Client& client);
// INVALID_ARGUMENT (BAD_REQUEST): the root lies around another one. It makes one request for each name below the root,
// down to three levels, and at most 300.
absl::Status CheckNotAround(S3Client& client);

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_NESTED_ROOT_H_
