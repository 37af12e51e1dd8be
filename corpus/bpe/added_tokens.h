// Finds added tokens in a text, with the switches of Hugging Face's AddedToken.
#ifndef CAIRN_CORPUS_BPE_ADDED_TOKENS_H_
#define CAIRN_CORPUS_BPE_ADDED_TOKENS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/status/status.h"
#include "corpus/bpe/special_matcher.h"

namespace cairn::corpus {

// A token that is looked for in the text before the text is cut into words.
struct AddedToken {
  std::string content;
  uint32_t id = 0;
  bool special = true;
  bool normalized = false;   // matched after the tokens that are not normalized
  bool single_word = false;  // matched only where no word character touches it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
};

// Tokens that are looked for at the same time. Immutable; thread-safe.
class AddedTokens {
 public:
  AddedTokens() = default;
  // Finds each token by its content, or by the text that stands at its place in `texts` if that is not empty.
  explicit AddedTokens(std::vector<AddedToken> tokens, const std::vector<std::string>& texts = {});

  bool empty() const { return tokens_.empty(); }

  // Appends the ids of the tokens that stand in `text` to `ids`. Calls piece(begin, end), which returns an
  // absl::Status, for each part of the text between them, in order, and returns the first error.
  template <typename Piece>
  absl::Status Encode(std::string_view text, std::vector<uint32_t>& ids, Piece&& piece) const {
    size_t done = 0;
    Match match;
    for (size_t from = 0; Find(text, done, from, match);) {
      if (match.begin > done) CAIRN_RETURN_IF_ERROR(piece(done, match.begin));
      ids.push_back(tokens_[match.token].id);
      done = match.end;
    }
    if (done < text.size()) return piece(done, text.size());
    return absl::OkStatus();
  }

 private:
  struct Match {
    size_t begin, end;
    size_t token;
  };
  // Finds the next token at or after `from`, and moves `from` behind the token itself. `done` is where the previous
  // match ended; white space before `done` belongs to that match, so lstrip takes none of it. Returns false if there is
  // no further token.
  bool Find(std::string_view text, size_t done, size_t& from, Match& match) const;

  std::vector<AddedToken> tokens_;
  SpecialMatcher matcher_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_ADDED_TOKENS_H_
