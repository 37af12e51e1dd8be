// Counts the words of a corpus on several threads, in bounded memory, and can be resumed.
#ifndef CAIRN_CORPUS_BPE_WORD_COUNTER_H_
#define CAIRN_CORPUS_BPE_WORD_COUNTER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "corpus/bpe/line_texts.h"
#include "corpus/bpe/pretokenizer.h"
#include "corpus/bpe/special_matcher.h"
#include "corpus/bpe/text_blocks.h"
#include "corpus/io/bad_lines.h"

namespace cairn::corpus {

// What a count with `resume` finds of an earlier one.
struct CountResumption {
  bool found = false;
  size_t inputs_done = 0;  // the first ones
  uint64_t offset = 0;     // how many bytes of the next one, decompressed, are done too
};

struct CountOptions {
  BlockReader::Options blocks;
  LineTextOptions lines;  // TextUnit::kLine, kJson
  int threads = 1;
  // The word tables stay below this many bytes. The rest is spilled to sorted runs. 0 means no limit.
  uint64_t memory_bytes = 0;
  // Runs are written here. With `resume` they stay, together with a record of how far the count came, which is written
  // after every `checkpoint_bytes` of input. A later count of the same inputs goes on from there.
  std::string directory;
  bool resume = false;
  uint64_t checkpoint_bytes = uint64_t{4} << 30;
  // With `resume`, called before anything is read; may be empty.
  std::function<void(const CountResumption&)> resumption;
  // The count depends on these besides the inputs. A record with other settings is refused.
  std::string settings;
  // Words are delivered in this many parts.
  size_t parts = 1;
  // Delivers the words in ascending order, in one part. They are spilled for that.
  bool sorted = false;
  // Called before the first visit of a part with the number of its distinct words and their bytes, if these are known.
  std::function<void(size_t part, uint64_t words, uint64_t bytes)> expect;
  // Called by one thread at a time with the bytes read from the files. If it returns false, the count ends with
  // CANCELLED (INTERRUPTED).
  std::function<bool(uint64_t)> progress;
  // If it is set, bad lines (kJson) are left out, and it gets those of a part of an input, in the order of the inputs;
  // one thread at a time calls it. Not with `resume`, because the next run would not have those of this one.
  std::function<absl::Status(const std::string& input, const BadLines&)> bad_lines;
};

struct CountSummary {
  uint64_t file_bytes = 0;
  uint64_t distinct_words = 0;
  uint64_t bad_lines = 0;  // left out
  bool resumed = false;
  bool spilled = false;
};

using WordVisitor = std::function<absl::Status(size_t part, std::string_view word, uint64_t count)>;

// When all inputs are read, it calls visit(part, word, count) once for every distinct word, in no particular order.
// Several threads may call it at the same time for different parts, which are of about equal size. INVALID_ARGUMENT
// (BAD_JSON_LINE): a line is bad, and bad ones are not left out; the message has file and line; (BAD_REQUEST): the
// record to resume from belongs to other inputs or settings. Else the errors of BlockReader, Splitter, MergeRuns,
// WriteRun and `visit`.
absl::StatusOr<CountSummary> CountWords(const CountOptions& options, const Pretokenizer& pretokenizer,
                                        const SpecialMatcher& specials, const WordVisitor& visit);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_WORD_COUNTER_H_
