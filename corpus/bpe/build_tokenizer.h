// Builds tokenizers from what their files say.
#ifndef CAIRN_CORPUS_BPE_BUILD_TOKENIZER_H_
#define CAIRN_CORPUS_BPE_BUILD_TOKENIZER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "corpus/bpe/bpe_model.h"
#include "corpus/bpe/bpe_tokenizer.h"
#include "corpus/bpe/json_reader.h"
#include "corpus/bpe/tokenizer_files.h"
#include "corpus/bpe/vocabulary.h"

namespace cairn::corpus {

// Holds what a file says of a BPE model.
struct BpeModelParts {
  const TokenIds& vocab;
  const TokenPairs& merges;
  bool by_bytes = true;  // the tokens are written in the byte-level alphabet
  size_t prefix = 0;     // so many bytes at the begin of a merge's right side do not belong to the text
  bool ignore_merges = false;
  std::string unknown = "";  // empty if there is none
  bool fuse_unknown = false;
};
// Gives `model` its tokens and merges. Finish() remains to be called. `name` is the file's, for messages.
// INVALID_ARGUMENT (BAD_TOKENIZER): a merge or the unknown token is not in the vocabulary.
absl::Status FillModel(const BpeModelParts& parts, const std::string& name, BpeModel& model);

// Builds a tokenizer. `name` is the file's, for messages. INVALID_ARGUMENT (BAD_TOKENIZER): the file contradicts
// itself; (BAD_PATTERN): its pattern cannot be used.
absl::StatusOr<BpeTokenizer::Parts> BuildTokenizer(const TokenizerFile& file, const std::string& name);
absl::StatusOr<BpeTokenizer::Parts> BuildTiktoken(const std::vector<std::pair<std::string, uint32_t>>& ranks,
                                                  const std::vector<AddedToken>& specials, const std::string& pattern,
                                                  const std::string& name);

// Makes a vocabulary, so that training can go on from it. INVALID_ARGUMENT (BAD_TOKENIZER): the ids are not 0..n-1, or
// the file contradicts itself.
absl::StatusOr<BpeVocabulary> ToVocabulary(const TokenizerFile& file, const std::string& name);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_BUILD_TOKENIZER_H_
