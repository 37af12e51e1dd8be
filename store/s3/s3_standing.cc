#include "store/s3/s3_standing.h"

#include "common/status/reason.h"

namespace cairn {

absl::StatusOr<S3Object> HeadObject(S3Requester& requester, const std::string& key) {
  const S3Request request = {"HEAD", key};
  return ObjectIn(requester.address(), request, requester.Ask(request));
}

absl::StatusOr<std::optional<Put>> WhoseStands(S3Requester& requester, const std::string& key,
                                               const std::string& writer) {
  const auto standing = HeadObject(requester, key);
  if (standing.ok()) return standing->writer == writer ? Put::kCreated : Put::kExists;
  if (HasReason(standing.status(), Reason::kFileMissing)) return std::nullopt;
  return standing.status();
}

}  // namespace cairn
