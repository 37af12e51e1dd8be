#include "corpus/bpe/bpe_tokenizer.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <span>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/byte_level.h"
#include "corpus/unicode/class_table.h"
#include "corpus/unicode/repaired_utf8.h"

namespace cairn::corpus {
namespace {

constexpr size_t kEnds = 1024;
constexpr size_t kMaxNormalized = size_t{1} << 30;  // ICU counts bytes as int32

}  // namespace

class BpeEncoder final : public Encoder {
 public:
  explicit BpeEncoder(const BpeTokenizer& tokenizer)
      : tokenizer_(tokenizer), splitter_(tokenizer.parts_.pretokenizer), cache_(tokenizer.whole_) {}

  absl::Status Encode(std::string_view text, std::vector<uint32_t>& ids) override {
    const auto& normalize = tokenizer_.parts_.normalize;
    if (normalize) {
      if (text.size() > kMaxNormalized) {
        return MakeError(Reason::kBadRequest, absl::StrCat("the text has ", text.size(),
                                                           " bytes; this tokenizer takes texts of up to 1 GiB"));
      }
      if (!simdjson::validate_utf8(text.data(), text.size())) {
        repaired_ = RepairedUtf8(text, FindInvalidUtf8(text));
        text = repaired_;
      }
    }
    const size_t before = ids.size();
    const absl::Status status = tokenizer_.first_.Encode(text, ids, [&](size_t begin, size_t end) {
      std::string_view piece = text.substr(begin, end - begin);
      if (normalize) piece = normalize(piece, normal_);
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

  // Words as their ends tell. Long ones are cut into pieces that merges cannot join.
  class Words {
   public:
    Words(const BpeModel& model, const char* begin, const char* text, std::span<const uint32_t> ends)
        : model_(&model), text_(text), begin_(begin), end_(ends.data()), last_(end_ + ends.size()) {}

    bool Next(std::string_view& word) {
      if (end_ == last_) return false;
      const char* const end = text_ + *end_;
      auto size = static_cast<size_t>(end - begin_);
      if (size > WordKey::kInlineBytes) [[unlikely]]
        size = model_->PieceEnd({begin_, size}, 0);
      word = {begin_, size};
      begin_ += size;
      end_ += begin_ == end;
      return true;
    }

   private:
    const BpeModel* model_;
    const char* text_;
    const char* begin_;
    const uint32_t* end_;
    const uint32_t* last_;
  };

  void EncodeWords(std::string_view piece, size_t begin, std::span<const uint32_t> ends, std::vector<uint32_t>& ids) {
    const BpeModel& model = tokenizer_.parts_.model;
    cache_.Encode(Words(model, piece.data() + begin, piece.data(), ends), piece.data() + piece.size(), ids,
                  [&](std::span<const std::string_view> words, EncodedWords& made) {
                    model.Encode(words, scratch_, made);
                    return true;
                  });
  }

  const BpeTokenizer& tokenizer_;
  Splitter splitter_;
  IdCache cache_;
  BpeModel::Scratch scratch_;
  std::array<uint32_t, kEnds> ends_;
  std::string repaired_;
  std::string normal_;
  std::string prefixed_;
};

BpeTokenizer::BpeTokenizer(Parts parts) : parts_(std::move(parts)) {
  parts_.model.Finish();
  parts_.model.ForEachWholeWord([&](std::string_view word, uint32_t id) { whole_.Add(word, id); });
  std::vector<AddedToken> groups[2];
  for (const AddedToken& token : parts_.added) groups[token.normalized].push_back(token);
  first_ = AddedTokens(std::move(groups[0]));
  std::vector<std::string> normal;
  if (parts_.normalize) {
    for (const AddedToken& token : groups[1]) {
      std::string room;
      normal.emplace_back(parts_.normalize(token.content, room));
    }
  }
  second_ = AddedTokens(std::move(groups[1]), normal);
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
