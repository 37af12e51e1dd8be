#include "corpus/shuffle/memory_plan.h"

#include <algorithm>
#include <bit>

#include "common/resources/aligned_buffer.h"

namespace cairn::corpus {
namespace {

constexpr size_t kSmallestBlock = 64 << 10;
constexpr size_t kLargestBlock = 1 << 20;
constexpr size_t kSmallestRead = 256 << 10;
constexpr size_t kLargestRead = 2 << 20;
constexpr size_t kMemoryOfReader = 8 << 20;  // with less, one more reader does not help
constexpr int kMostReaders = 32;
constexpr int kMostSorters = 4;  // the output is one stream, so more sorters only make buckets smaller
constexpr int kSpareBlocks = 8;  // these are being written while others fill

size_t RoundDownToIo(size_t bytes) { return bytes / kIoAlignment * kIoAlignment; }

}  // namespace

MemoryPlan PlanMemory(const MemoryPlanInput& input) {
  MemoryPlan plan;
  const size_t region = input.region_bytes;
  plan.readers = static_cast<int>(
      std::clamp<size_t>(region / kMemoryOfReader, 1, static_cast<size_t>(std::clamp(input.threads, 1, kMostReaders))));
  const size_t share = RoundDownToIo(region / plan.readers);
  plan.read_block = std::clamp(std::bit_floor(share / 16), kSmallestRead, kLargestRead);
  plan.writer_bytes = share - 2 * plan.read_block;
  plan.sorters = std::clamp(input.threads, 2, kMostSorters);
  plan.sorter_bytes = RoundDownToIo(region / plan.sorters);

  const uint64_t line = std::max<uint64_t>(input.line_bytes, 1);
  const double text = static_cast<double>(input.text_bytes);
  const double in_memory = text * static_cast<double>(line + kLineOverhead) / static_cast<double>(line);
  plan.fits =
      in_memory < 0.8 * static_cast<double>(RoundDownToIo(region / plan.readers) - 2 * plan.read_block) * plan.readers;

  // A bucket takes three quarters of a sorter's memory. An unlucky one that is larger is divided again.
  const double wanted = in_memory / (0.75 * static_cast<double>(plan.sorter_bytes)) + 1;
  const size_t most = plan.writer_bytes / kSmallestBlock - kSpareBlocks;
  uint64_t buckets = static_cast<uint64_t>(std::clamp(wanted, 2.0, static_cast<double>(most)));
  // Blocks are as large as memory allows. Eight bytes of memory describe each of them, which is a sixteenth of the
  // region in all.
  const double least = text * 128 / static_cast<double>(region);
  // A sorter that divides a bucket needs some blocks too.
  const size_t largest = std::min(kLargestBlock, std::bit_floor(plan.sorter_bytes / 8));
  size_t block = std::clamp(std::bit_floor(plan.writer_bytes / (buckets + kSpareBlocks)), kSmallestBlock, largest);
  while (static_cast<double>(block) < least && 2 * block <= plan.sorter_bytes / 8 && block < plan.writer_bytes / 16) {
    block *= 2;
  }
  buckets = std::clamp<uint64_t>(plan.writer_bytes / block - 2, 2, buckets);
  plan.block_bytes = block;
  plan.buckets = static_cast<uint32_t>(buckets);
  return plan;
}

}  // namespace cairn::corpus
