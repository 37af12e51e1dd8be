// Builds the three indices of a GPTDataset of megatron-core: the order of its documents over all epochs, where each
// sample begins in that order, and the order of the samples.
//
// They are those of megatron/core/datasets/gpt_dataset.py and build_sample_idx in helpers.cpp, bit for bit. A
// "document" of these names is a sequence of the .idx file.
#ifndef CAIRN_CORPUS_SAMPLER_GPT_DATASET_H_
#define CAIRN_CORPUS_SAMPLER_GPT_DATASET_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "corpus/sampler/cache_files.h"
#include "corpus/sampler/npy_file.h"

namespace cairn::corpus {

// What is known of the indices before they are built.
struct GptDatasetPlan {
  uint64_t first_document = 0;
  uint64_t documents = 0;  // of one epoch
  uint64_t epochs = 1;
  uint64_t sequence_length = 0;
  uint64_t samples = 0;  // at least as many as were asked for
  // If the last epoch serves less than 80 % of its samples, its documents and its samples are shuffled by themselves;
  // then this many samples come before it. Otherwise it is `samples`.
  uint64_t samples_shuffled_first = 0;
  bool last_epoch_is_separate = false;

  std::map<std::string, NpyHeader> Headers() const;
  // Returns the size of the larger of two arrays, for which BuildGptDataset has one memory: that of all documents (8
  // bytes for each; 4 for each of each epoch if there are several), and that of all samples (4 bytes for each; 8 from
  // 2^32 - 2). A shuffle needs its whole array, because each of its steps may touch any place.
  uint64_t array_bytes() const;
  // Returns what BuildGptDataset takes: this, and buffers of files.
  uint64_t memory_bytes() const { return array_bytes() + (uint64_t{9} << 20); }
  // Returns how many values BuildGptDataset counts.
  uint64_t work() const { return 2 * epochs * documents + samples; }
};

// The sequences of one split of a pair.
struct SplitSize {
  uint64_t first = 0;  // the first of them
  uint64_t sequences = 0;
  uint64_t tokens = 0;
};

// Plans for one split. `samples` is how many are needed at least; without it, one epoch. BAD_REQUEST: there are fewer
// than two tokens, or so many samples that their tokens do not fit 62 bits. MEMORY_LIMIT: memory_bytes() would be more
// than `memory`.
absl::StatusOr<GptDatasetPlan> PlanGptDataset(const SplitSize& split, std::optional<uint64_t> samples,
                                              uint32_t sequence_length, uint64_t memory);

// Builds the indices and publishes them. `lengths` are those of the split's sequences in tokens. `done` counts to
// plan.work(). INTERRUPTED: `stop` was set. MEMORY_LIMIT. Errors of storage as CacheFiles::Publish.
absl::Status BuildGptDataset(const GptDatasetPlan& plan, std::span<const int32_t> lengths, uint32_t seed,
                             const CacheFiles& files, const std::atomic<bool>& stop, std::atomic<uint64_t>& done);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SAMPLER_GPT_DATASET_H_
