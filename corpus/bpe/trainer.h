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
#include "corpus/bpe/parity_choice.h"
#include "corpus/bpe/pretokenizer.h"
#include "corpus/bpe/text_blocks.h"
#include "corpus/bpe/vocabulary.h"
#include "corpus/bpe/word_counter.h"
#include "corpus/bpe/word_runs.h"
#include "corpus/io/input_part.h"

namespace cairn::corpus {

// A part of the text that must not end up with many more tokens than the others: a language, say.
struct TextGroup {
  std::string name;
  std::vector<std::string> inputs;
  // Files of the same kind, in which the tokens are counted. The groups should say the same in them.
  std::vector<std::string> development;
};

// What a training with `resume` finds of an earlier one. Each group, and its development text, has counts of its own.
struct TrainResumption {
  std::string text;  // "GROUP" or "development text of GROUP"; without groups empty
  CountResumption count;
  size_t inputs = 0;
  size_t merges = 0;  // that were made
};

struct TrainOptions {
  std::vector<InputPiece> inputs;
  // If there are any, they take the place of `inputs`, and merges are chosen as ParityEngine says. Either all have
  // development files, or none has, or there are ratios.
  std::vector<TextGroup> groups;
  ParityOptions parity;
  TextUnit unit = TextUnit::kFile;
  std::string json_key = "text";       // kJson
  size_t max_line = size_t{32} << 20;  // bytes (kLine, kJson)
  InvalidUtf8 invalid_utf8 = InvalidUtf8::kBytes;
  // Counts all tokens: 256 bytes, merges and special tokens.
  uint32_t vocab_size = 0;
  std::vector<std::string> special_tokens;
  uint64_t min_frequency = 1;
  TieBreak tie_break = TieBreak::kBytes;
  // A vocabulary to which merges are added, while its ids and merges stay.
  std::optional<BpeVocabulary> extend;
  std::vector<std::string> vetoes;  // as for MakeVeto
  int threads = 1;
  uint64_t memory_bytes = 0;  // 0 means no limit
  // Word counts are spilled here. It is made if needed and removed at the end, but kept if a run with `resume` ends
  // early. With TieBreak::kBytes and without groups, such a run also keeps its merges, so a later one does not have to
  // find them again.
  std::string work_directory;
  bool resume = false;
  uint64_t checkpoint_bytes = uint64_t{4} << 30;
  std::function<void(const TrainResumption&)> resumption;  // with `resume`, called before each count; may be empty
  const std::atomic<bool>* stop = nullptr;                 // as in BlockReader::Options
  // Called by one thread at a time with the phase and its progress (bytes read, or merges made). If it returns false,
  // the training ends with CANCELLED (INTERRUPTED).
  std::function<bool(const char* phase, uint64_t done)> progress;
  std::function<absl::Status(const std::string& input, const BadLines&)> bad_lines;  // as in CountOptions
};

struct TrainSummary {
  BpeVocabulary vocabulary;
  CountSummary count;
  size_t resumed_merges = 0;  // those that an earlier run had made
};

// Refuses options that do not fit together, before anything is read. INVALID_ARGUMENT (BAD_REQUEST): vocab_size is
// below 256 + special tokens, or the extended vocabulary is larger already; or a special token is empty or is the text
// of a byte; or the groups do not fit together. Errors of MakeVeto.
absl::Status CheckTraining(const TrainOptions& options);

// Ids come in this order. TieBreak::kBytes: the 256 bytes, the merges, the special tokens. kHuggingFace: the special
// tokens, the bytes by their printable characters, the merges. With `extend`, its tokens keep their ids and new ones
// follow. The vocabulary is smaller than asked for if no pair is left to merge.
//
// Errors of CheckTraining. RESOURCE_EXHAUSTED (MEMORY_LIMIT): the distinct words
// need more than memory_bytes; the message says how much. Else the errors of CountWords MergeEngine and MakeVeto.
absl::StatusOr<TrainSummary> TrainBpe(const TrainOptions& options, const Pretokenizer& pretokenizer);

// The words of a large corpus without groups are counted in parts, by several processes, whose counts one training then
// takes:
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
