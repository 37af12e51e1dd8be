#include "corpus/bpe/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <span>

#include "common/status/status.h"
#include "corpus/bpe/byte_level.h"

namespace cairn::corpus {
namespace {

constexpr size_t kEnds = 512;

}  // namespace

class BpeEncoder final : public Encoder {
 public:
  explicit BpeEncoder(const BpeTokenizer& tokenizer)
      : tokenizer_(tokenizer), splitter_(tokenizer.parts_.pretokenizer), cache_(tokenizer.whole_) {}

  absl::Status Encode(std::string_view text, std::vector<uint32_t>& ids) override {
    const size_t before = ids.size();
    const absl::Status status = tokenizer_.first_.Encode(text, ids, [&](size_t begin, size_t end) {
      const std::string_view piece = text.substr(begin, end - begin);
      return tokenizer_.second_.Encode(
          piece, ids, [&](size_t from, size_t to) { return EncodePiece(piece.substr(from, to - from), ids); });
    });
    if (!status.ok()) ids.resize(before);
    return status;
  }

 private:
  absl::Status EncodePiece(std::string_view piece, std::vector<uint32_t>& ids) {
    if (tokenizer_.parts_.add_prefix_space && piece[0] != ' ') {
      prefixed_.assign(1, ' ');
      prefixed_.append(piece);
      piece = prefixed_;
    }
    for (size_t from = 0; from < piece.size();) {
      CAIRN_ASSIGN_OR_RETURN(const size_t count, splitter_.Split(piece, from, ends_));
      EncodeWords(piece, from, std::span(ends_).first(count), ids);
      from = ends_[count - 1];
    }
    return absl::OkStatus();
  }

  // Encodes words. Long ones are cut into pieces that merges cannot join.
  void EncodeWords(std::string_view piece, size_t begin, std::span<const uint32_t> ends, std::vector<uint32_t>& ids) {
    words_.clear();
    for (const uint32_t end : ends) {
      std::string_view word = piece.substr(begin, end - begin);
      begin = end;
      if (word.size() > WordKey::kInlineBytes) {
        for (size_t from = 0; from < word.size();) {
          const size_t until = tokenizer_.parts_.model.PieceEnd(word, from);
          words_.push_back(word.substr(from, until - from));
          from = until;
        }
      } else {
        words_.push_back(word);
      }
    }
    cache_.Encode(words_, piece.data() + piece.size(), ids,
                  [&](std::string_view word, std::vector<uint32_t>& word_ids) {
                    tokenizer_.parts_.model.Encode(word, scratch_, word_ids);
                    return true;
                  });
  }

  const BpeTokenizer& tokenizer_;
  Splitter splitter_;
  IdCache cache_;
  BpeModel::Scratch scratch_;
  std::array<uint32_t, kEnds> ends_;
  std::vector<std::string_view> words_;
  std::string prefixed_;
};

BpeTokenizer::BpeTokenizer(Parts parts) : parts_(std::move(parts)) {
  parts_.model.Finish();
  parts_.model.ForEachWholeWord([&](std::string_view word, uint32_t id) { whole_.Add(word, id); });
  std::vector<AddedToken> groups[2];
  for (const AddedToken& token : parts_.added) groups[token.normalized].push_back(token);
  first_ = AddedTokens(std::move(groups[0]));
  second_ = AddedTokens(std::move(groups[1]));
}

std::unique_ptr<Encoder> BpeTokenizer::NewEncoder() const { return std::make_unique<BpeEncoder>(*this); }

std::optional<uint32_t> BpeTokenizer::IdOf(std::string_view token) const {
  for (const AddedToken& added : parts_.added) {
    if (added.content == token) return added.id;
  }
  const auto bytes = FromByteLevel(token);
  if (!bytes.has_value()) return std::nullopt;
  return parts_.model.Find(*bytes);
}

}  // namespace cairn::corpus
