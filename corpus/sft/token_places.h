// Finds the bytes of a text for which each of its tokens stands.
#ifndef CAIRN_CORPUS_SFT_TOKEN_PLACES_H_
#define CAIRN_CORPUS_SFT_TOKEN_PLACES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cairn::corpus {

struct ByteRange {
  size_t begin = 0, end = 0;
};

// Knows the text of each token of a tokenizer.json. Immutable; thread-safe.
class TokenPlaces {
 public:
  // `name` is the file's, for messages. BAD_TOKENIZER: the file is damaged.
  static absl::StatusOr<TokenPlaces> Create(const std::string& tokenizer_json, const std::string& name);

  // UNSUPPORTED: the tokens are no pieces of text (WordPiece, WordLevel), so that Find would find none.
  absl::Status CheckFinds() const;

  // Fills places[i] with the bytes of `text` that ids[i] stands for, as the offsets of Hugging Face tokenizers: a
  // character of which it has a part counts as a whole, and a blank that the tokenizer has added stands for the
  // character behind it. BAD_JSON_LINE: the tokenizer has changed the text (normalized it, or has no token for a part
  // of it), so that the tokens are not found in it; the message says from which byte on.
  absl::Status Find(std::string_view text, std::span<const uint32_t> ids, std::vector<ByteRange>& places) const;

  // Returns those of the added tokens whose texts are among `texts`.
  std::vector<uint32_t> AddedAmong(std::span<const std::string_view> texts) const;

 private:
  struct Token {
    std::string text;
    bool added = false, lstrip = false, rstrip = false;  // as AddedToken
  };
  TokenPlaces() = default;
  size_t Match(std::string_view text, size_t at, const Token& token, bool begins_piece, ByteRange& place) const;
  void Trim(std::string_view text, const Token& token, bool first, ByteRange& place) const;

  std::vector<Token> tokens_;  // by their ids
  std::string name_, model_;
  bool byte_level_ = false;
  bool adds_blanks_ = false;  // before words that have none before them
  bool prepends_ = false;     // a blank to each piece of text, whatever it begins with
  // The post-processors that leave the blanks of tokens out of their places; true: but for one of the first token.
  std::vector<bool> trims_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SFT_TOKEN_PLACES_H_
