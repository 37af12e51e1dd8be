#include <cstdlib>
#include <string_view>

#include "common/format/plain_header.h"

// A header that is accepted must tile the file, and must be read the same when it is rendered again.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto index = cairn::ParsePlainIndex(bytes); index.ok()) {
    const auto again = cairn::ParsePlainIndex(cairn::RenderPlainIndex(*index));
    if (!again.ok() || again->weight_map != index->weight_map) std::abort();
  }
  const auto tensors = cairn::ParsePlainHeader(bytes, size);
  if (!tensors.ok()) return 0;
  uint64_t end = 0;
  for (const cairn::PlainTensor& tensor : *tensors) {
    if (tensor.begin != end) std::abort();
    end = tensor.end;
  }
  const std::string header = cairn::RenderPlainHeader(*tensors);
  const auto again = cairn::ParsePlainHeader(header, header.size() + end);
  if (!again.ok() || again->size() != tensors->size()) std::abort();
  return 0;
}
