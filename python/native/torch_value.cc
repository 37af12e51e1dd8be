#include "python/native/torch_value.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "common/status/reason.h"
#include "foreign/read/torch/torch_value.h"

int64_t cairn_torch_value(const char* archive, int64_t bytes, const char* name, char** text, int64_t* text_bytes) {
  const auto value = cairn::EncodeTorchValue(std::string_view(archive, static_cast<size_t>(bytes)), name);
  std::string result;
  if (value.ok()) {
    result = *value;
  } else {
    const auto reason = cairn::ReasonOf(value.status());
    result = std::string(cairn::InfoOf(reason.value_or(cairn::Reason::kInternal)).name) + ": " +
             std::string(value.status().message());
  }
  *text = static_cast<char*>(std::malloc(result.size() + 1));
  *text_bytes = 0;
  if (*text == nullptr) return 0;
  std::memcpy(*text, result.data(), result.size());
  *text_bytes = static_cast<int64_t>(result.size());
  return value.ok() ? 1 : 0;
}

void cairn_free_text(char* text) { std::free(text); }
