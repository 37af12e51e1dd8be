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

namespace cairn::corpus {

struct TrainOptions {
  std::vector<std::string> inputs;
  TextUnit unit = TextUnit::kFile;
  std::string json_key = "text";
  InvalidUtf8 invalid_utf8 = InvalidUtf8::kBytes;
  // All tokens: 256 bytes, merges and special tokens.
  uint32_t vocab_size = 0;
  std::vector<std::string> special_tokens;
  uint64_t min_frequency = 1;
  TieBreak tie_break = TieBreak::kBytes;
  // A vocabulary whose ids and merges stay, and to which merges are added.
  std::optional<BpeVocabulary> extend;
  int threads = 1;
  uint64_t memory_bytes = 0;  // 0: no limit
  // For spilled word counts; made if needed and removed at the end, but kept when a count with `resume` ends early.
  std::string work_directory;
  bool resume = false;
  uint64_t checkpoint_bytes = uint64_t{4} << 30;
  const std::atomic<bool>* stop = nullptr;  // as in BlockReader::Options
  // Phase and how far it is (bytes read; merges made); false ends with CANCELLED (INTERRUPTED). One thread at a time.
  std::function<bool(const char* phase, uint64_t done)> progress;
};

struct TrainSummary {
  BpeVocabulary vocabulary;
  CountSummary count;
};

// The ids: in bytes order (TieBreak::kBytes) the 256 bytes, the merges, then the special tokens; as Hugging Face has
// them (kHuggingFace) the special tokens, the bytes by their printable characters, then the merges. With `extend`, its
// tokens keep their ids and new ones follow. A vocabulary is smaller than asked for when no pair is left to merge.
//
// INVALID_ARGUMENT (BAD_REQUEST): vocab_size is below 256 + special tokens, or what is extended is larger already; an
// empty special token, or one that is the text of a byte. RESOURCE_EXHAUSTED (MEMORY_LIMIT): the distinct words need
// more than memory_bytes; the message says how much. Else the errors of CountWords and MergeEngine.
absl::StatusOr<TrainSummary> TrainBpe(const TrainOptions& options, const Pretokenizer& pretokenizer);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_TRAINER_H_
