#include <cstdlib>
#include <cstring>
#include <string>

#include "common/base/crc32c.h"
#include "store/plan/plan_file.h"
#include "store/storage/testing/memory_file.h"

namespace {

constexpr size_t kHead = 36;

// An index that is accepted lies within the file, and every rank has a layout.
void Check(const std::string& bytes) {
  const auto file = cairn::PlanFile::Open(std::make_unique<cairn::MemoryFile>(bytes));
  if (!file.ok()) return;
  for (const cairn::PlanFile::Layout& layout : file->layouts()) {
    if (layout.offset > bytes.size() || layout.bytes > bytes.size() - layout.offset) std::abort();
    (void)file->ReadLayout(layout);
  }
  if (file->inputs().layout.size() != file->inputs().node.size()) std::abort();
  for (const std::string& digest : file->inputs().layout) {
    if (file->Find(digest) == nullptr) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  Check(bytes);
  // Once more with checksums and lengths that fit, so that damage behind them is reached.
  if (size <= kHead) return 0;
  uint64_t layouts = 0;
  std::memcpy(&layouts, bytes.data() + 20, 8);
  if (layouts > size - kHead) layouts = 0;
  const uint64_t index = size - kHead - layouts;
  std::memcpy(bytes.data() + 12, &index, 8);
  std::memcpy(bytes.data() + 20, &layouts, 8);
  const uint32_t index_crc = cairn::Crc32c(bytes.data() + kHead, index);
  std::memcpy(bytes.data() + 28, &index_crc, 4);
  const uint32_t head_crc = cairn::Crc32c(bytes.data(), 32);
  std::memcpy(bytes.data() + 32, &head_crc, 4);
  Check(bytes);
  return 0;
}
