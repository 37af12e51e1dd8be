// The flag --pretokenizer of the commands that encode text.
#ifndef CAIRN_CLI_CORPUS_PRETOKENIZER_FLAG_H_
#define CAIRN_CLI_CORPUS_PRETOKENIZER_FLAG_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "corpus/bpe/load_tokenizer.h"

namespace cairn::cli {

// Returns what the tokenizers are loaded with. `pretokenizer` is the value of the flag, empty if it was not given.
// BAD_REQUEST: none of the tokenizers takes it, because their files have the rule. BAD_PATTERN: it is no regular
// expression. Else the errors of FindTokenizerFile.
absl::StatusOr<corpus::BpeLoadOptions> LoadOptionsFor(const std::vector<std::string>& tokenizers,
                                                      const std::string& pretokenizer);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_PRETOKENIZER_FLAG_H_
