// Holds a byte-level BPE vocabulary and writes the files in which it is kept.
#ifndef CAIRN_CORPUS_BPE_VOCABULARY_H_
#define CAIRN_CORPUS_BPE_VOCABULARY_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "corpus/bpe/pretokenizer.h"

namespace cairn::corpus {

struct BpeVocabulary {
  struct Token {
    std::string bytes;  // a special token has its text here
    bool special = false;
  };
  std::vector<Token> tokens;                          // by id
  std::vector<std::pair<uint32_t, uint32_t>> merges;  // by rank, as ids
  std::string pattern;                                // the pre-tokenizer's
  bool gpt2_pretokenizer = false;
};

// These return the content of files.
// This one is tokenizer.json, which Hugging Face tokenizers loads and writes.
std::string TokenizerJson(const BpeVocabulary& vocabulary);
// This one is tokenizer_config.json: the class that opens tokenizer.json, and which special tokens are eos_token,
// pad_token and so on, by their names in common use.
std::string TokenizerConfigJson(const BpeVocabulary& vocabulary);
// Returns whether TokenizerConfigJson may have made this text, of some vocabulary: nothing in it was edited.
bool IsTokenizerConfigOfTraining(const std::string& text);
// Writes {"token": id, ...}, ascending by id. Tokens are in the byte-level alphabet, special tokens as they are.
std::string VocabJson(const BpeVocabulary& vocabulary);
// It has one line "left right" per merge, in order, below a line with the version.
std::string MergesTxt(const BpeVocabulary& vocabulary);
// It has one line "base64 rank" per token. A rank is the token's id, so special tokens leave gaps.
std::string TiktokenFile(const BpeVocabulary& vocabulary);

// Writes tokenizer.json, tokenizer_config.json, vocab.json, merges.txt and tokenizer.tiktoken into `directory`, which
// is made if needed. An older set there stays as it is until all five are written. A kill after that leaves no mixture,
// but the first files of one set, in the order tokenizer_config.json, tokenizer.json, vocab.json, merges.txt,
// tokenizer.tiktoken: so what the directory's readers take is one whole tokenizer, and they refuse the files that lack
// another. BAD_REQUEST: a name is a device's, a FIFO's or a socket's. RESOURCE_EXHAUSTED (NO_SPACE),
// FAILED_PRECONDITION (STORAGE_READ_ONLY), UNAVAILABLE (STORAGE_ERROR).
absl::Status WriteVocabulary(const BpeVocabulary& vocabulary, const std::string& directory);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_VOCABULARY_H_
