// Shuffles in steps that several processes, perhaps on several machines, do at the same time. Each part of the inputs
// puts its lines into buckets by their keys (ScatterPart). Each bucket of all parts is shuffled on its own: Shuffle
// with ShuffleOptions::placed. The sorted buckets, one after the other, are the output (JoinBuckets). It is the one
// that Shuffle makes of the inputs.
#ifndef CAIRN_CORPUS_SHUFFLE_SHUFFLE_PARTS_H_
#define CAIRN_CORPUS_SHUFFLE_SHUFFLE_PARTS_H_

#include <atomic>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "corpus/io/input_part.h"
#include "corpus/shuffle/shuffle_options.h"

namespace cairn::corpus {

inline constexpr uint32_t kMostBuckets = 200;  // their files are open at the same time

// The keys of bucket `number`, from 1.
KeyRange KeysOfBucket(InputPart bucket);

struct ScatteredPart {
  std::vector<std::string> files;   // by bucket; each line has its place before it (placed_line.h)
  std::vector<LineMultiset> lines;  // by bucket
  std::string all;                  // PartOfInputs::all
};
// Returns how many bytes the inputs have on disk. BAD_REQUEST: one can be read only once, or is the output; as
// ListInputs, CheckColumns and FindOutputPlace.
absl::StatusOr<uint64_t> ShuffleInputBytes(const ShuffleOptions& options);

// Reads a part of options.inputs, and makes the files options.output-00001 and so on, one for each bucket. Takes
// about a quarter of options.memory, or 128 KiB for each bucket if that is more. Errors of Shuffle; BAD_REQUEST: there
// are too many buckets.
absl::StatusOr<ScatteredPart> ScatterPart(const ShuffleOptions& options, InputPart part, uint32_t buckets,
                                          const std::atomic<bool>& stop);

// Writes the lines of the sorted buckets in this order to options.output, as Shuffle does. `expected`: those of all
// parts. Errors of Shuffle.
absl::StatusOr<ShuffleReport> JoinBuckets(const ShuffleOptions& options, const std::vector<std::string>& sorted,
                                          const LineMultiset& expected, const std::atomic<bool>& stop,
                                          ShuffleProgress* progress);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SHUFFLE_SHUFFLE_PARTS_H_
