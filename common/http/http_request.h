// Parses the head of an HTTP request: its first line and its headers, up to the empty line.
#ifndef CAIRN_COMMON_HTTP_HTTP_REQUEST_H_
#define CAIRN_COMMON_HTTP_HTTP_REQUEST_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace cairn {

struct HttpRequest {
  std::string method;         // "GET"
  std::string path;           // decoded, without a query: "/api/job/llm"
  std::string host;           // the Host header
  std::string authorization;  // the Authorization header
};

// A browser sends less than 1 KiB.
inline constexpr size_t kMaxRequestHead = 8192;

enum class RequestState {
  kIncomplete,  // more bytes are needed
  kComplete,
  kMalformed,  // no HTTP/1 request, or in a form that neither browsers nor Prometheus send
  kTooLong,    // the head has more than kMaxRequestHead bytes
};

// Reads the head at the beginning of `bytes`, and fills `request` if the head is complete. Bytes behind the head are
// ignored, because the requests that the server answers have no body.
RequestState ReadRequest(std::string_view bytes, HttpRequest& request);

}  // namespace cairn

#endif  // CAIRN_COMMON_HTTP_HTTP_REQUEST_H_
