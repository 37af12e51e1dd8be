#include "foreign/tensors/window_size.h"

#include <algorithm>

#include "common/resources/aligned_buffer.h"

namespace cairn {
namespace {

constexpr uint64_t kMinMemory = 4 * kSmallestWindowBytes;
// Leaves room for headers, plans and stacks.
constexpr uint64_t kSpareMemory = uint64_t{16} << 20;
// Larger windows than this make nothing faster, unless a part needs one.
constexpr uint64_t kUsualWindow = uint64_t{64} << 20;

}  // namespace

uint64_t WindowBytes(const WindowSizes& sizes) {
  const uint64_t memory = std::max(sizes.memory_bytes, kMinMemory);
  const uint64_t aside = kSpareMemory + sizes.reader_bytes;
  const uint64_t most = std::max(memory > aside ? (memory - aside) / 2 : 0, kSmallestWindowBytes);
  const uint64_t wanted = std::min(std::max(sizes.largest_part, kUsualWindow), sizes.most_bytes);
  return RoundUpToIo(std::max<uint64_t>(std::min(wanted, most), 1));
}

}  // namespace cairn
