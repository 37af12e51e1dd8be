// The statuses of HTTP that the requests to object stores look at.
#ifndef CAIRN_STORE_S3_HTTP_STATUS_H_
#define CAIRN_STORE_S3_HTTP_STATUS_H_

namespace cairn {

inline constexpr int kHttpPartialContent = 206;
inline constexpr int kHttpNotFound = 404;
inline constexpr int kHttpPreconditionFailed = 412;
inline constexpr int kHttpRangeNotSatisfiable = 416;

inline bool IsGood(int status) { return status >= 200 && status < 300; }
// The credentials are not accepted, or not for this.
inline bool IsDenied(int status) { return status == 401 || status == 403; }

}  // namespace cairn

#endif  // CAIRN_STORE_S3_HTTP_STATUS_H_
