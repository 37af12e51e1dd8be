#include "corpus/pipeline/word_model.h"

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/byte_level.h"
#include "corpus/unicode/utf8.h"

namespace cairn::corpus {
namespace {

absl::string_view Key(std::string_view text) { return {text.data(), text.size()}; }

std::optional<uint32_t> Look(const TokenMap& vocab, std::string_view token) {
  const auto it = vocab.find(Key(token));
  if (it == vocab.end()) return std::nullopt;
  return it->second;
}

class Bpe final : public WordModel {
 public:
  Bpe(BpeModel model, bool by_bytes) : model_(std::move(model)), by_bytes_(by_bytes) {
    model_.Finish();
    model_.ForEachWholeWord([&](std::string_view word, uint32_t id) { whole_.Add(word, id); });
  }

  absl::Status Encode(std::string_view word, WordScratch& scratch, std::vector<uint32_t>& ids) const override {
    model_.Encode(word, scratch.bpe, ids);
    return absl::OkStatus();
  }
  absl::Status EncodeAll(std::span<const std::string_view> words, WordScratch& scratch,
                         EncodedWords& made) const override {
    model_.Encode(words, scratch.bpe, made);
    return absl::OkStatus();
  }
  std::optional<uint32_t> IdOf(std::string_view token) const override {
    if (!by_bytes_) return model_.Find(token);
    const auto bytes = FromByteLevel(token);
    return bytes ? model_.Find(*bytes) : std::nullopt;
  }
  const WholeWords& whole_words() const override { return whole_; }
  size_t PieceEnd(std::string_view word, size_t from) const override { return model_.PieceEnd(word, from); }

 private:
  BpeModel model_;
  const bool by_bytes_;
  WholeWords whole_;
};

class WordLevel final : public WordModel {
 public:
  WordLevel(TokenMap vocab, std::optional<uint32_t> unknown) : vocab_(std::move(vocab)), unknown_(unknown) {}

  absl::Status Encode(std::string_view word, WordScratch&, std::vector<uint32_t>& ids) const override {
    std::optional<uint32_t> id = Look(vocab_, word);
    if (!id) id = unknown_;
    if (!id) return UnknownWord(word);
    ids.push_back(*id);
    return absl::OkStatus();
  }
  std::optional<uint32_t> IdOf(std::string_view token) const override { return Look(vocab_, token); }

 private:
  const TokenMap vocab_;
  const std::optional<uint32_t> unknown_;
};

class WordPiece final : public WordModel {
 public:
  WordPiece(TokenMap vocab, WordPieceRules rules) : vocab_(std::move(vocab)), rules_(std::move(rules)) {
    for (const auto& [token, id] : vocab_) {
      first_.Add(token, id);
      if (token.size() > rules_.prefix.size() && token.compare(0, rules_.prefix.size(), rules_.prefix) == 0) {
        later_.Add(std::string_view(token).substr(rules_.prefix.size()), id);
      }
    }
  }

  absl::Status Encode(std::string_view word, WordScratch&, std::vector<uint32_t>& ids) const override {
    uint64_t characters = 0;
    for (size_t at = 0; at < word.size(); ++characters) NextScalar(word, at);
    const size_t before = ids.size();
    size_t done = characters > rules_.max_characters ? std::string_view::npos : 0;
    while (done < word.size()) {
      const PieceTrie::Match match = (done == 0 ? first_ : later_).Longest(word.substr(done));
      if (match.length == 0) break;
      ids.push_back(match.id);
      done += match.length;
    }
    if (done == word.size()) return absl::OkStatus();
    ids.resize(before);
    if (!rules_.unknown) return UnknownWord(word);
    ids.push_back(*rules_.unknown);
    return absl::OkStatus();
  }
  std::optional<uint32_t> IdOf(std::string_view token) const override { return Look(vocab_, token); }

 private:
  const TokenMap vocab_;
  const WordPieceRules rules_;
  PieceTrie first_, later_;  // pieces that begin a word; those after the prefix
};

}  // namespace

absl::Status WordModel::EncodeAll(std::span<const std::string_view> words, WordScratch& scratch,
                                  EncodedWords& made) const {
  for (const std::string_view word : words) {
    CAIRN_RETURN_IF_ERROR(Encode(word, scratch, made.ids));
    made.ends.push_back(made.ids.size());
  }
  return absl::OkStatus();
}

const WholeWords& WordModel::whole_words() const {
  static const WholeWords kNone;
  return kNone;
}

absl::Status UnknownWord(std::string_view word) {
  return MakeError(Reason::kBadTokenizer,
                   absl::StrCat("'", std::string(word.substr(0, 100)),
                                "' is not in the vocabulary, and the tokenizer has no token for what is unknown"));
}

std::unique_ptr<WordModel> BpeWordModel(BpeModel model, bool by_bytes) {
  return std::make_unique<Bpe>(std::move(model), by_bytes);
}

std::unique_ptr<WordModel> WordLevelModel(TokenMap vocab, std::optional<uint32_t> unknown) {
  return std::make_unique<WordLevel>(std::move(vocab), unknown);
}

std::unique_ptr<WordModel> WordPieceModel(TokenMap vocab, WordPieceRules rules) {
  return std::make_unique<WordPiece>(std::move(vocab), std::move(rules));
}

}  // namespace cairn::corpus
