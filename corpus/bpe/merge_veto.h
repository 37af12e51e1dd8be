// Refuses merges by the text of the token that they would make.
#ifndef CAIRN_CORPUS_BPE_MERGE_VETO_H_
#define CAIRN_CORPUS_BPE_MERGE_VETO_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::corpus {

// Returns whether the pair with these bytes, left and right together, must not merge; or why that cannot be said.
using MergeVeto = std::function<absl::StatusOr<bool>(std::string_view bytes)>;

// Makes a veto that refuses each token in which one of the regular expressions finds a match. They are read as
// Hugging Face reads them, and see U+FFFD in place of bytes that are not UTF-8. Without expressions it returns null,
// which refuses nothing. The veto is for one thread. INVALID_ARGUMENT (BAD_PATTERN): an expression cannot be compiled;
// from the veto: matching went beyond PCRE2's limits.
absl::StatusOr<MergeVeto> MakeVeto(const std::vector<std::string>& patterns);

// These are the second stage of SuperBPE (Liu, Hayase, Hofmann, Oh, Smith and Choi, "SuperBPE: Space Travel for
// Language Models", COLM 2025), as its authors' scripts train it: text is no longer cut at blanks, only at numbers, at
// runs of punctuation, and before the last of several blanks; and no token has a blank behind a colon, or more than
// four words.
inline constexpr char kSuperwordPattern[] = R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]{2,}[\r\n/]*| +(?!\S))";
std::vector<std::string> SuperwordVetoes();

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_MERGE_VETO_H_
