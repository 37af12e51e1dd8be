// Decides which samples of a fine-tuning corpus stand together in packs, as Megatron-Bridge's
// megatron/bridge/data/packing/algorithms.py does (create_hist, create_packing_strategy, fill_packing_strategy).
#ifndef CAIRN_CORPUS_SFT_PACKING_H_
#define CAIRN_CORPUS_SFT_PACKING_H_

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::corpus {

// The order in which samples look for the first pack that has room for them.
enum class PackOrder { kShuffled, kDecreasing };

struct Packing {
  // The numbers of the samples in the order of the output, and the place in it at which each pack begins; one more
  // stands at the end.
  std::vector<uint32_t> samples;
  std::vector<uint32_t> firsts;
  // In tokens, and in samples.
  uint64_t longest_sample = 0, shortest_pack = 0, most_samples = 0, tokens = 0;

  size_t packs() const { return firsts.size() - 1; }
};

// `lengths` are those of the samples in tokens that are predicted (one less than a sample has), each at most
// `pack_size`. The same lengths, order and seed give the packs of Megatron-Bridge in its order. It takes about 40 bytes
// of memory for each sample. BAD_REQUEST: there are no samples, or 2^32 of them. INTERRUPTED: `stop` (not null) is set.
absl::StatusOr<Packing> PackSamples(std::span<const uint32_t> lengths, uint32_t pack_size, PackOrder order,
                                    uint32_t seed, const std::atomic<bool>* stop);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SFT_PACKING_H_
