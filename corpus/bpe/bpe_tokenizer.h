// Turns text into ids by added tokens, a pre-tokenizer, merges, and a cache of words.
#ifndef CAIRN_CORPUS_BPE_BPE_TOKENIZER_H_
#define CAIRN_CORPUS_BPE_BPE_TOKENIZER_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "corpus/bpe/added_tokens.h"
#include "corpus/bpe/bpe_model.h"
#include "corpus/bpe/id_cache.h"
#include "corpus/bpe/pretokenizer.h"
#include "corpus/tokenizer/tokenizer.h"

namespace cairn::corpus {

class BpeTokenizer final : public Tokenizer {
 public:
  struct Parts {
    BpeModel model;
    std::vector<AddedToken> added;
    Pretokenizer pretokenizer;
    bool add_prefix_space = false;  // puts a blank before each text that does not begin with one
    uint32_t vocab_size = 0;        // larger than every id
    // Returns the normal form of a text: the text itself, or what it wrote to `room`. Without it text is taken as it
    // is; with it, what is no UTF-8 is read as U+FFFD. Thread-safe.
    std::function<std::string_view(std::string_view text, std::string& room)> normalize = nullptr;
  };

  explicit BpeTokenizer(Parts parts);

  std::unique_ptr<Encoder> NewEncoder() const override;
  uint32_t vocab_size() const override { return parts_.vocab_size; }
  // Finds an added token by its text, and any other token by its form in the byte-level alphabet ("Ġthe").
  std::optional<uint32_t> IdOf(std::string_view token) const override;

  const Parts& parts() const { return parts_; }

 private:
  friend class BpeEncoder;

  Parts parts_;
  WholeWords whole_;
  AddedTokens first_;   // not normalized
  AddedTokens second_;  // normalized
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_BPE_TOKENIZER_H_
