// The interface of the models that turn one word into ids, and those that need only a vocabulary or merges.
#ifndef CAIRN_CORPUS_PIPELINE_WORD_MODEL_H_
#define CAIRN_CORPUS_PIPELINE_WORD_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "corpus/bpe/bpe_model.h"
#include "corpus/bpe/encoded_words.h"
#include "corpus/bpe/id_cache.h"
#include "corpus/wordpiece/piece_trie.h"

namespace cairn::corpus {

// What one thread needs to encode words. Its content means nothing between two calls.
struct WordScratch {
  struct BestPath {
    double score;
    size_t begin;
    uint32_t id;
    bool reached;
  };
  BpeModel::Scratch bpe;
  std::vector<BestPath> paths;
  std::vector<uint32_t> ids;
};

// Immutable; thread-safe.
class WordModel {
 public:
  virtual ~WordModel() = default;

  // Appends the ids of a word, which must not be empty. INVALID_ARGUMENT (BAD_TOKENIZER): a part of the word is not in
  // the vocabulary, and no token stands for what is unknown.
  virtual absl::Status Encode(std::string_view word, WordScratch& scratch, std::vector<uint32_t>& ids) const = 0;
  // Appends the ids of several words. If a word fails, `made` has those before it.
  virtual absl::Status EncodeAll(std::span<const std::string_view> words, WordScratch& scratch,
                                 EncodedWords& made) const;
  // Finds a token by its text in the file.
  virtual std::optional<uint32_t> IdOf(std::string_view token) const = 0;
  // Returns words that are one token each, for caches. It lives as long as the model.
  virtual const WholeWords& whole_words() const;
  // Returns where the first piece of a long word ends that can be encoded on its own. See BpeModel::PieceEnd.
  virtual size_t PieceEnd(std::string_view word, size_t /*from*/) const { return word.size(); }
};

// Says that `word` cannot be encoded.
absl::Status UnknownWord(std::string_view word);

// Joins bytes or characters by merges. `by_bytes`: the model reads bytes, and its tokens are bytes.
std::unique_ptr<WordModel> BpeWordModel(BpeModel model, bool by_bytes);

// Takes whole words; a word that is no token becomes `unknown`.
using TokenMap = absl::flat_hash_map<std::string, uint32_t>;
std::unique_ptr<WordModel> WordLevelModel(TokenMap vocab, std::optional<uint32_t> unknown);

struct WordPieceRules {
  std::optional<uint32_t> unknown;  // for a word that cannot be cut, or is too long
  std::string prefix;               // before each piece but a word's first
  uint64_t max_characters = 100;    // of a word
};
// Cuts a word into the longest tokens from left to right.
std::unique_ptr<WordModel> WordPieceModel(TokenMap vocab, WordPieceRules rules);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PIPELINE_WORD_MODEL_H_
