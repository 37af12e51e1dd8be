// Reads the files in which byte-level BPE tokenizers are published. All content is hostile until it is checked.
#ifndef CAIRN_CORPUS_BPE_TOKENIZER_FILES_H_
#define CAIRN_CORPUS_BPE_TOKENIZER_FILES_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "corpus/bpe/bpe_tokenizer.h"

namespace cairn::corpus {

// Holds what a tokenizer.json says, or a vocab.json with a merges.txt.
struct TokenizerFile {
  std::vector<std::pair<std::string, uint32_t>> vocab;      // text as in the file, id
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
  std::vector<AddedToken> added;
  std::string pattern;     // the pre-tokenizer's
  std::string normalizer;  // the type of the normalizer; empty if there is none
  bool add_prefix_space = false;
  bool ignore_merges = false;
  std::string unknown;  // empty if there is none
  bool fuse_unknown = false;
};

// Each takes a file's content, and its name for messages. INVALID_ARGUMENT (BAD_TOKENIZER): it is damaged or
// contradicts itself. UNIMPLEMENTED (UNSUPPORTED): it is another kind of tokenizer.
// `normalizers` are the types of normalizers, which have no options, that the caller knows.
absl::StatusOr<TokenizerFile> ParseTokenizerJson(const std::string& content, const std::string& name,
                                                 std::span<const std::string_view> normalizers = {});
absl::StatusOr<std::vector<std::pair<std::string, uint32_t>>> ParseVocabJson(const std::string& content,
                                                                             const std::string& name);
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParseMergesTxt(std::string_view content,
                                                                                const std::string& name);
// Returns the bytes of each token and its rank.
absl::StatusOr<std::vector<std::pair<std::string, uint32_t>>> ParseTiktoken(std::string_view content,
                                                                            const std::string& name);
// The same of NVIDIA's JSON form, [{"rank": 0, "token_bytes": "base64", "token_str": "..."}, ...], whose ranks ascend
// by one from 0.
absl::StatusOr<std::vector<std::pair<std::string, uint32_t>>> ParseTiktokenJson(const std::string& content,
                                                                                const std::string& name);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_TOKENIZER_FILES_H_
