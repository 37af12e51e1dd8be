// Packs a corpus for supervised fine-tuning: lines of JSON become samples, and samples packs of one length, with a mask
// of what is trained on, in the Parquet file that Megatron-Bridge reads.
#ifndef CAIRN_CORPUS_SFT_PACK_CORPUS_H_
#define CAIRN_CORPUS_SFT_PACK_CORPUS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "corpus/sft/packing.h"
#include "corpus/sft/sample_encoder.h"

namespace cairn::corpus {

// Megatron-Bridge's own limits are those of memory; positions are 32-bit numbers.
inline constexpr uint32_t kMostPackSize = uint32_t{1} << 24;

struct PackProgress {
  uint64_t samples = 0, tokens = 0, bad_lines = 0;
  uint64_t packs = 0;  // written; 0 while lines are read
};

struct PackOptions {
  std::vector<std::string> inputs;   // files, read in this order
  std::string output_prefix;         // P: P.idx.parquet and P_metadata.json
  std::vector<std::string> columns;  // of a table; if empty, all
  uint32_t pack_size = 0;            // tokens that are predicted, in a pack and in a sample
  // Samples are filled up with `pad_id` to a multiple of this many predicted tokens; what is longer than the largest
  // multiple is cut off. With 1, samples that are longer than a pack are left out.
  uint32_t pad_multiple = 1;
  uint32_t pad_id = 0;
  PackOrder order = PackOrder::kShuffled;
  uint32_t seed = 0;
  // Is called once for each worker.
  std::function<absl::StatusOr<std::unique_ptr<SampleEncoder>>()> new_encoder;
  int workers = 1;  // threads
  size_t batch_bytes = 1 << 20;
  size_t max_line = size_t{32} << 20;
  bool skip_bad_lines = false;                        // leaves bad lines out, and describes each in P_bad_lines.log
  std::function<void(const PackProgress&)> progress;  // as PreprocessOptions
  std::atomic<uint64_t>* file_bytes = nullptr;        // as PreprocessOptions
  const std::atomic<bool>* interrupted = nullptr;     // as PreprocessOptions
};

struct PackReport {
  uint64_t samples = 0, tokens = 0, trained = 0;  // in packs; of samples and tokens with those that are not predicted
  uint64_t packs = 0, too_long = 0, bad_lines = 0, input_bytes = 0;
  double efficiency = 0;  // in percent: predicted tokens of the room for them
};

std::string PackedPath(const std::string& prefix);
std::string PackMetadataPath(const std::string& prefix);
std::string PackBadLinesPath(const std::string& prefix);

// Takes the memory of Preprocess, some 40 bytes for each sample, and 150 MiB for a row group; the tokens wait in a file
// without a name beside the output, 4 bytes each. After an error nothing that this call wrote stands under the output's
// names.
//
// BAD_REQUEST: sizes do not fit together, or no sample is left. BAD_JSON_LINE: the first bad line, unless such lines
// are left out. As SampleEncoder, OpenSource, PackSamples and PackedParquet. INTERRUPTED. NO_SPACE, STORAGE_READ_ONLY,
// STORAGE_ERROR: the output cannot be written.
absl::StatusOr<PackReport> PackCorpus(const PackOptions& options);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SFT_PACK_CORPUS_H_
