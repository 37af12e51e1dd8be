// Reads what an object store, or somebody in between, may answer.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "store/s3/s3_xml.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto xml = cairn::ParseS3Xml(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!xml.ok()) return 0;
  if (xml->name.empty()) std::abort();
  // No text is longer than the answer, and each element took some of it.
  size_t length = xml->name.size();
  for (const auto& [name, text] : xml->texts) length = std::max(length, text.size());
  for (const auto& [name, texts] : xml->elements) {
    for (const auto& [of, text] : texts) length = std::max(length, text.size());
  }
  if (length > size || xml->elements.size() > size) std::abort();
  return 0;
}
