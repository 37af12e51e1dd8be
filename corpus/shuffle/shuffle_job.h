// Holds what the parts of one shuffle share.
#ifndef CAIRN_CORPUS_SHUFFLE_SHUFFLE_JOB_H_
#define CAIRN_CORPUS_SHUFFLE_SHUFFLE_JOB_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/resources/aligned_buffer.h"
#include "corpus/io/output_place.h"
#include "corpus/shuffle/input_reader.h"
#include "corpus/shuffle/journal.h"
#include "corpus/shuffle/shuffle_options.h"
#include "corpus/shuffle/shuffle_output.h"

namespace cairn::corpus {

struct ShuffleJob {
  ShuffleOptions options;
  const std::atomic<bool>* stop;
  ShuffleProgress* progress;  // never null
  std::vector<InputFile> inputs;
  std::vector<InputRange> ranges;
  SourceOptions source;
  MemoryPlan plan;
  AlignedBuffer region;  // all large memory except the output's buffers
  ShuffleReport report;
  ShuffleResumption found;

  bool Stopped() const { return stop->load(std::memory_order_relaxed); }
  std::string_view Memory(int part, size_t part_bytes) const {
    return {region.data() + static_cast<size_t>(part) * part_bytes, part_bytes};
  }
};

// Uses the temporary disk. `journal` may be null; with it, `state_directory` holds the temporary file.
absl::Status ShuffleThroughScratch(ShuffleJob& job, ShuffleOutputOptions output_options, Journal* journal,
                                   const std::string& state_directory);

// Uses no temporary disk: it reads the input again for every range of keys that fits in memory.
absl::Status ShuffleByRereading(ShuffleJob& job, ShuffleOutputOptions output_options);

// Finds the output, and refuses what does not fit together. BAD_REQUEST; UNSUPPORTED; as FindOutputPlace.
absl::StatusOr<OutputPlace> FindShuffleOutput(const ShuffleOptions& options);

// Refuses an output, or a name that a part may take, that is among the inputs: the next run would read it again, and
// what it replaces would be lost. `place` is that of FindShuffleOutput. BAD_REQUEST.
absl::Status CheckOutputIsNoInput(const ShuffleOptions& options, const OutputPlace& place,
                                  const std::vector<InputFile>& inputs);

// Returns how the inputs are read. `stop` must outlive it.
SourceOptions SourceOptionsFor(const ShuffleOptions& options, const std::atomic<bool>& stop);

// Returns how the output is written. `stop` must outlive it.
ShuffleOutputOptions OutputOptionsFor(const ShuffleOptions& options, const OutputPlace& place,
                                      const std::string& header, const std::atomic<bool>& stop);

// CHECKSUM_MISMATCH: they differ; it has the numbers.
absl::Status CheckMultisets(const LineMultiset& read, const LineMultiset& written);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SHUFFLE_SHUFFLE_JOB_H_
