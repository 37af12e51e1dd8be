// Turns JSON lines into Megatron-LM's .bin/.idx pairs, byte for byte as its tools/preprocess_data.py does.
#ifndef CAIRN_CORPUS_PREPROCESS_PREPROCESS_H_
#define CAIRN_CORPUS_PREPROCESS_PREPROCESS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "corpus/preprocess/document_encoder.h"
#include "corpus/preprocess/sentence_splitter.h"
#include "corpus/tokenizer/tokenizer.h"

namespace cairn::corpus {

struct PreprocessProgress {
  uint64_t documents = 0;
  uint64_t input_bytes = 0;  // bytes of text, decompressed
  uint64_t tokens = 0;       // tokens of all keys
};

struct PreprocessOptions {
  std::vector<std::string> inputs;  // files, read in this order
  std::string output_prefix;        // P: P_KEY_document.bin, or P_KEY_sentence.bin
  std::vector<std::string> keys = {"text"};
  int workers = 1;  // threads
  int partitions = 1;
  bool keep_sequential = false;  // keeps the order of the documents whatever the partitions are
  size_t batch_bytes = 1 << 20;
  size_t max_line = size_t{32} << 20;  // a longer line is refused; at most kMaxLineBytes
  // If it is null, a text is one sentence.
  std::function<std::unique_ptr<SentenceSplitter>()> new_splitter;
  // One thread at a time calls it after each batch; may be null.
  std::function<void(const PreprocessProgress&)> progress;
  // A signal handler sets it; may be null.
  const std::atomic<bool>* interrupted = nullptr;
};

// Returns the prefix of a key's pair of files: P_KEY_document or P_KEY_sentence.
std::string PrefixOfKey(const PreprocessOptions& options, const std::string& key);

struct PreprocessedKey {
  std::string key, prefix;  // prefix.bin and prefix.idx
  std::string dtype;
  uint64_t documents = 0, sequences = 0, tokens = 0;
};

struct PreprocessReport {
  std::vector<PreprocessedKey> keys;
  uint64_t documents = 0, input_bytes = 0;
};

// Takes memory for about 12 batches per worker, and ten to twenty times that of the longest line: while one is under
// way that is longer than three batches per worker, no other is taken. After an error, nothing that this call wrote
// stands under the output's names.
//
// BAD_REQUEST: there is no key, a key is given twice, or workers or partitions are below 1. INPUT_UNREADABLE.
// BAD_JSON_LINE: names the first line that is bad or too long by its file and number. INTERRUPTED. NO_SPACE,
// STORAGE_READ_ONLY, STORAGE_ERROR: the output cannot be written.
absl::StatusOr<PreprocessReport> Preprocess(const PreprocessOptions& options, const Tokenizer& tokenizer,
                                            const Framing& framing);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PREPROCESS_PREPROCESS_H_
