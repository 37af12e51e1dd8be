#include <cstdlib>
#include <string_view>

#include "foreign/read/source/plain_header.h"

// A header that is accepted must tile the file, and must be read the same when it is rendered again.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto index = cairn::ParsePlainIndex(bytes); index.ok()) {
    const auto again = cairn::ParsePlainIndex(cairn::RenderPlainIndex(*index));
    if (!again.ok() || again->weight_map != index->weight_map) std::abort();
  }
  const auto parsed = cairn::ParsePlainHeader(bytes, size);
  if (!parsed.ok()) return 0;
  uint64_t end = 0;
  for (const cairn::PlainTensor& tensor : parsed->tensors) {
    if (tensor.begin != end) std::abort();
    end = tensor.end;
  }
  const std::string header = cairn::RenderPlainHeader(parsed->tensors);
  const auto again = cairn::ParsePlainHeader(header, header.size() + end);
  if (!again.ok() || again->tensors.size() != parsed->tensors.size()) std::abort();
  return 0;
}
