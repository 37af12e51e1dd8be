#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/http/http_request.h"

// What is accepted holds no control characters, and bytes behind the head change nothing.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  cairn::HttpRequest request, again;
  const cairn::RequestState state = cairn::ReadRequest(bytes, request);
  if (state == cairn::RequestState::kIncomplete && size >= cairn::kMaxRequestHead) std::abort();
  if (state != cairn::RequestState::kComplete) return 0;
  if (!request.path.starts_with('/') || request.method.empty()) std::abort();
  for (const std::string* text : {&request.method, &request.path, &request.host, &request.authorization}) {
    if (std::any_of(text->begin(), text->end(), [](char c) { return c != '\t' && (c < ' ' ? c >= 0 : c == 127); })) {
      std::abort();
    }
  }
  const std::string longer = std::string(bytes) + "more";
  if (cairn::ReadRequest(longer, again) != state || again.path != request.path || again.host != request.host) {
    std::abort();
  }
  return 0;
}
