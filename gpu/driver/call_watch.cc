#include "gpu/driver/call_watch.h"

#include <cstdio>
#include <string_view>

namespace cairn::cuda {

// Shorter calls are not reported: a thread that polls events is in a short call most of the time.
constexpr int64_t kLeastNanoseconds = 1'000'000;

std::string CallWatch::Hanging() const {
  const char* symbol = symbol_.load(std::memory_order_acquire);
  const int64_t nanoseconds = Now() - since_.load(std::memory_order_relaxed);
  if (symbol == nullptr || nanoseconds < kLeastNanoseconds) return "";
  // Removes the version suffix of the symbol, which people do not use.
  std::string_view name = symbol;
  if (const size_t version = name.rfind("_v"); version != std::string_view::npos) name = name.substr(0, version);
  char text[128];
  std::snprintf(text, sizeof text, "%.*s has not returned for %.3g s", static_cast<int>(name.size()), name.data(),
                static_cast<double>(nanoseconds) * 1e-9);
  return text;
}

}  // namespace cairn::cuda
