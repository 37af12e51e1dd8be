// Trains a byte-level BPE vocabulary on a corpus.
#ifndef CAIRN_CORPUS_BPE_TRAINER_H_
#define CAIRN_CORPUS_BPE_TRAINER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "corpus/bpe/merge_engine.h"
#include "corpus/bpe/pretokenizer.h"
#include "corpus/bpe/text_blocks.h"
#include "corpus/bpe/vocabulary.h"
#include "corpus/bpe/word_counter.h"
#include "corpus/bpe/word_runs.h"
#include "corpus/io/input_part.h"

namespace cairn::corpus {

struct TrainOptions {
  std::vector<InputPiece> inputs;
  TextUnit unit = TextUnit::kFile;
  std::string json_key = "text";
  InvalidUtf8 invalid_utf8 = InvalidUtf8::kBytes;
  // Counts all tokens: 256 bytes, merges and special tokens.
  uint32_t vocab_size = 0;
  std::vector<std::string> special_tokens;
  uint64_t min_frequency = 1;
  TieBreak tie_break = TieBreak::kBytes;
  // A vocabulary to which merges are added, while its ids and merges stay.
  std::optional<BpeVocabulary> extend;
  int threads = 1;
  uint64_t memory_bytes = 0;  // 0 means no limit
  // Word counts are spilled here. It is made if needed and removed at the end, but kept if a count with `resume` ends
  // early.
  std::string work_directory;
  bool resume = false;
  uint64_t checkpoint_bytes = uint64_t{4} << 30;
  const std::atomic<bool>* stop = nullptr;  // as in BlockReader::Options
  // Called by one thread at a time with the phase and its progress (bytes read, or merges made). If it returns false,
  // the training ends with CANCELLED (INTERRUPTED).
  std::function<bool(const char* phase, uint64_t done)> progress;
};

struct TrainSummary {
  BpeVocabulary vocabulary;
  CountSummary count;
};

// Ids come in this order. TieBreak::kBytes: the 256 bytes, the merges, the special tokens. kHuggingFace: the special
// tokens, the bytes by their printable characters, the merges. With `extend`, its tokens keep their ids and new ones
// follow. The vocabulary is smaller than asked for if no pair is left to merge.
//
// INVALID_ARGUMENT (BAD_REQUEST): vocab_size is below 256 + special tokens, or the extended vocabulary is larger
// already; or a special token is empty or is the text of a byte. RESOURCE_EXHAUSTED (MEMORY_LIMIT): the distinct words
// need more than memory_bytes; the message says how much. Else the errors of CountWords and MergeEngine.
absl::StatusOr<TrainSummary> TrainBpe(const TrainOptions& options, const Pretokenizer& pretokenizer);

// The words of a large corpus are counted in parts, by several processes, whose counts one training then takes:
//
// Returns where plain inputs may be cut into parts; null: inputs go whole. `pretokenizer` must outlive the result.
PlaceToCut CutsForCounting(const TrainOptions& options, const Pretokenizer& pretokenizer);

struct CountedPart {
  CountSummary summary;
  WordRun run;
};
// Counts the words of a part, which are options.inputs, and writes them to `path`. Fails as TrainBpe until words are
// counted.
absl::StatusOr<CountedPart> CountPart(const TrainOptions& options, const Pretokenizer& pretokenizer,
                                      const std::string& path);
// Makes TrainBpe with these options, which have `resume` and all inputs, take the counts of all parts instead of
// reading the inputs. The runs must be in options.work_directory. Fails as WriteFileAtomically.
absl::Status RecordParts(const TrainOptions& options, const Pretokenizer& pretokenizer,
                         const std::vector<WordRun>& runs);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_TRAINER_H_
