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
#include "corpus/io/input_part.h"
#include "corpus/preprocess/document_encoder.h"
#include "corpus/preprocess/sentence_splitter.h"
#include "corpus/tokenizer/tokenizer.h"

namespace cairn::corpus {

struct PreprocessProgress {
  uint64_t documents = 0;
  uint64_t tokens = 0;     // tokens of all keys
  uint64_t bad_lines = 0;  // lines that were left out
};

struct PreprocessOptions {
  std::vector<InputPiece> inputs;  // read in this order
  std::string output_prefix;       // P: P_KEY_document.bin, or P_KEY_sentence.bin
  std::vector<std::string> keys = {"text"};
  // If it is not empty, the key of a list with one mode for each sequence: the pairs become multimodal, with int32
  // tokens as those of Megatron-LM's tools/preprocess_mmdata.py.
  std::string modes_key;
  int workers = 1;  // threads
  int partitions = 1;
  bool keep_sequential = false;  // keeps the order of the documents whatever the partitions are
  size_t batch_bytes = 1 << 20;
  size_t max_line = size_t{32} << 20;  // a longer line is bad; at most kMaxLineBytes
  bool skip_bad_lines = false;         // leaves bad lines out, and describes each in BadLinesPath
  // If it is null, a text is one sentence.
  std::function<std::unique_ptr<SentenceSplitter>()> new_splitter;
  // One thread at a time calls it after each batch; may be null.
  std::function<void(const PreprocessProgress&)> progress;
  // Counts the bytes of the input files themselves (compressed ones, if they are) as they are read; may be null.
  std::atomic<uint64_t>* file_bytes = nullptr;
  // A signal handler sets it; may be null.
  const std::atomic<bool>* interrupted = nullptr;
};

// Returns the first place from `offset` on where a line begins, as preprocessing sees lines (FindPart).
absl::StatusOr<uint64_t> LineToCut(const RangedInput& input, uint64_t offset);

// Returns the prefix of a key's pair of files: P_KEY_document or P_KEY_sentence.
std::string PrefixOfKey(const PreprocessOptions& options, const std::string& key);

// Returns the file that describes the lines which were left out: P_bad_lines.log. Each of its lines is a JSON object
// with the input's name ("file"), the number of the line in it, from 1 ("line"), and what is wrong ("cause").
std::string BadLinesPath(const PreprocessOptions& options);

struct PreprocessedKey {
  std::string key, prefix;  // prefix.bin and prefix.idx
  std::string dtype;
  uint64_t documents = 0, sequences = 0, tokens = 0;
};

struct PreprocessReport {
  std::vector<PreprocessedKey> keys;
  uint64_t documents = 0;
  uint64_t input_bytes = 0;  // of text, decompressed
  uint64_t bad_lines = 0;    // left out
};

// Takes memory for about 12 batches per worker, and ten to twenty times that of the longest line: while one is under
// way that is longer than three batches per worker, no other is taken. After an error, nothing that this call wrote
// stands under the output's names.
//
// BAD_REQUEST: there is no key, a key is given twice, workers or partitions are below 1, or sentences with modes are to
// be split. BAD_JSON_LINE: names the
// first line that is bad or too long by its file and number, unless bad lines are left out. INTERRUPTED. As OpenPiece
// and ByteSource::Read. NO_SPACE,
// STORAGE_READ_ONLY, STORAGE_ERROR: the output cannot be written.
absl::StatusOr<PreprocessReport> Preprocess(const PreprocessOptions& options, const Tokenizer& tokenizer,
                                            const Framing& framing);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PREPROCESS_PREPROCESS_H_
