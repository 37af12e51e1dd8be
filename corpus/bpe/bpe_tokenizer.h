// Turns text into ids by added tokens, a pre-tokenizer, merges, and a cache of words.
#ifndef CAIRN_CORPUS_BPE_BPE_TOKENIZER_H_
#define CAIRN_CORPUS_BPE_BPE_TOKENIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "corpus/bpe/bpe_model.h"
#include "corpus/bpe/pretokenizer.h"
#include "corpus/bpe/special_matcher.h"
#include "corpus/tokenizer/tokenizer.h"

namespace cairn::corpus {

// A token that is matched in the text before it is cut into words, with the switches of Hugging Face's AddedToken.
struct AddedToken {
  std::string content;
  uint32_t id = 0;
  bool special = true;
  bool normalized = false;   // matched after the tokens that are not normalized
  bool single_word = false;  // matched only where no word character touches it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
};

class BpeTokenizer final : public Tokenizer {
 public:
  struct Parts {
    BpeModel model;
    std::vector<AddedToken> added;
    Pretokenizer pretokenizer;
    bool add_prefix_space = false;  // puts a blank before each text that does not begin with one
    uint32_t vocab_size = 0;        // larger than every id
  };

  explicit BpeTokenizer(Parts parts);

  std::unique_ptr<Encoder> NewEncoder() const override;
  uint32_t vocab_size() const override { return parts_.vocab_size; }
  // Finds an added token by its text, and any other token by its form in the byte-level alphabet ("Ġthe").
  std::optional<uint32_t> IdOf(std::string_view token) const override;

  const Parts& parts() const { return parts_; }

 private:
  friend class BpeEncoder;

  // Added tokens that are matched at the same time.
  struct Group {
    std::vector<AddedToken> tokens;
    SpecialMatcher matcher;
  };

  Parts parts_;
  Group first_;   // not normalized
  Group second_;  // normalized
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_BPE_TOKENIZER_H_
