#include <cstdlib>
#include <string_view>
#include <vector>

#include "common/format/safetensors_header.h"

// A header that ParseHeader accepts must be consistent, and must be read the same when it is rendered again.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto header = cairn::ParseHeader({reinterpret_cast<const char*>(data), size});
  if (!header.ok()) return 0;
  std::vector<cairn::StoredItem> items;
  std::vector<cairn::ItemChecksums> checksums;
  uint64_t end = 0;
  for (const cairn::ParsedItem& item : header->items) {
    if (item.begin != end || item.end - item.begin != item.item.bytes()) std::abort();
    if (item.checksums.blocks.size() != cairn::ChecksumBlockCount(item.item.bytes())) std::abort();
    end = item.end;
    items.push_back(item.item);
    checksums.push_back(item.checksums);
  }
  if (end != header->data_bytes) std::abort();
  const std::string text = cairn::RenderHeader(items, checksums);
  if (text.size() % cairn::kDataAlignment != 0) std::abort();
  return 0;
}
