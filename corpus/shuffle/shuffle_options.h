// Holds what a shuffle is asked for, how far it is, and what it reports at the end.
#ifndef CAIRN_CORPUS_SHUFFLE_SHUFFLE_OPTIONS_H_
#define CAIRN_CORPUS_SHUFFLE_SHUFFLE_OPTIONS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "corpus/io/byte_source.h"
#include "corpus/shuffle/line_key.h"
#include "corpus/shuffle/line_multiset.h"
#include "corpus/shuffle/memory_plan.h"

namespace cairn::corpus {

// What a run with `resume` finds of an earlier one.
struct ShuffleResumption {
  bool earlier = false;        // there was one
  bool other = false;          // it had other inputs, or another output
  bool resumed = false;        // and this run goes on from it
  uint64_t bytes_read = 0;     // of the inputs' text, which are not read again
  bool all_read = false;       // nothing is left to read
  uint64_t bytes_written = 0;  // of the output's text, which are not written again
};

struct ShuffleOptions {
  std::vector<std::string> inputs;  // files, patterns, directories, "-"
  std::string output;
  uint64_t seed = 0;
  // The inputs are files that ScatterPart made (shuffle_parts.h), whose lines have these keys.
  bool placed = false;
  KeyRange keys;
  // The output is a file that stands, of which others write other ranges (shared_output.h): from this byte on. Not with
  // `resume`, parts or a compression.
  std::optional<uint64_t> at;
  // The process stays below this many resident bytes plus 16 MiB. At least kMinShuffleMemory.
  uint64_t memory = uint64_t{1} << 30;
  int threads = 1;
  std::string temp_dir;  // empty: the output's directory
  bool no_scratch = false;
  bool resume = false;       // goes on where an interrupted run stopped, and keeps what is needed for that
  uint64_t split_lines = 0;  // at most one of these three may be set
  uint64_t split_bytes = 0;
  uint64_t split_files = 0;
  bool Splits() const { return split_lines + split_bytes + split_files > 0; }
  Compression compression = Compression::kNone;
  uint64_t header_lines = 0;  // header lines of every input, with which every output file begins
  char separator = '\n';
  std::vector<std::string> columns;  // of Parquet and Arrow files; if empty, all
  bool direct = true;                // uses O_DIRECT where the file system allows it
  // With `resume`, about this many bytes of work are lost at most.
  uint64_t checkpoint_bytes = uint64_t{1} << 30;
  // Plain files are read in ranges of at least this size.
  uint64_t range_bytes = uint64_t{64} << 20;
  // Divides the memory in another way, which changes only the speed. With it, the temporary disk is used even if all
  // fits.
  std::optional<MemoryPlan> plan;
  // Called once when nothing is refused any more, before anything is read; may be empty.
  std::function<void()> begins;
  // With `resume`, called once behind `begins`; may be empty.
  std::function<void(const ShuffleResumption&)> found;
};

// The shuffle writes it, and whoever shows progress reads it.
struct ShuffleProgress {
  std::atomic<uint64_t> bytes_read{0};   // decompressed, this pass
  std::atomic<uint64_t> bytes_total{0};  // of a pass; 0 if it is not known
  std::atomic<uint64_t> bytes_written{0};
  std::atomic<int> pass{0};  // 1: reading; 2: writing; without temporary disk it alternates
};

struct ShuffleReport {
  LineMultiset lines;  // proven: the lines read are those written
  uint64_t input_files = 0;
  std::vector<std::string> outputs;
  uint64_t output_bytes = 0;  // on disk
  uint64_t scratch_bytes = 0;
  uint64_t input_passes = 1;
  uint32_t buckets = 0;
  uint64_t divided_buckets = 0;
  bool resumed = false;
  bool direct_input = false;  // false for pipes too
  bool direct_scratch = false;
  bool direct_output = false;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SHUFFLE_SHUFFLE_OPTIONS_H_
