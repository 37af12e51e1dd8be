#include "export/window.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/resources/memory.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr uint64_t kMinMemory = 4 * kSmallestWindowBytes;
// Leaves room for headers, plans and stacks.
constexpr uint64_t kSpareMemory = uint64_t{16} << 20;
constexpr uint64_t kPage = 4096;

}  // namespace

uint64_t WindowBytes(uint64_t memory_bytes, uint64_t reader_bytes, uint64_t largest) {
  const uint64_t memory = std::max(memory_bytes, kMinMemory);
  const uint64_t aside = kSpareMemory + reader_bytes;
  const uint64_t most = std::max(memory > aside ? memory - aside : 0, kSmallestWindowBytes) / kPage * kPage;
  return std::max(std::min(most, largest), kPage);
}

absl::StatusOr<AlignedBuffer> AllocateWindow(uint64_t bytes) {
  return WithMemory(absl::StrCat("for a buffer of ", bytes, " bytes; lower --memory"),
                    [&]() -> absl::StatusOr<AlignedBuffer> { return AlignedBuffer(bytes); });
}

}  // namespace cairn
