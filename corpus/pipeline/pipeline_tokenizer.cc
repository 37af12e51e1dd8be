#include "corpus/pipeline/pipeline_tokenizer.h"

#include <simdjson.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/id_cache.h"
#include "corpus/unicode/class_table.h"
#include "corpus/unicode/repaired_utf8.h"
#include "corpus/unicode/utf8.h"

namespace cairn::corpus {
namespace {

constexpr size_t kMaxText = size_t{1} << 30;  // ICU counts bytes as int32
// Compatibility forms have up to eleven times the bytes of a character, and byte-level ones twice as many.
constexpr size_t kMaxGrowth = 64;
constexpr size_t kMayGrow = size_t{1} << 20;
constexpr size_t kLongWord = WordKey::kInlineBytes;

absl::Status Run(const std::vector<Step>& steps, Pieces& pieces) {
  for (const Step& step : steps) {
    CAIRN_RETURN_IF_ERROR(step(pieces));
    if (pieces.text.size() > pieces.limit) {
      return MakeError(Reason::kBadTokenizer, absl::StrCat("the tokenizer makes a text larger than ", pieces.limit,
                                                           " bytes, which is far more than normalizing needs"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

class PipelineEncoder final : public Encoder {
 public:
  explicit PipelineEncoder(const PipelineTokenizer& tokenizer)
      : tokenizer_(tokenizer), cache_(tokenizer.parts_.model->whole_words()) {}

  absl::Status Encode(std::string_view text, std::vector<uint32_t>& ids) override {
    if (text.size() > kMaxText) {
      return MakeError(Reason::kBadRequest,
                       absl::StrCat("the text has ", text.size(), " bytes; this tokenizer takes texts of up to 1 GiB"));
    }
    if (!tokenizer_.parts_.normalizer_repairs) {
      if (!simdjson::validate_utf8(text.data(), text.size())) {
        repaired_ = RepairedUtf8(text, FindInvalidUtf8(text));
        text = repaired_;
      }
    }
    const size_t before = ids.size();
    const absl::Status status = tokenizer_.first_.Encode(
        text, ids, [&](size_t begin, size_t end) { return EncodePart(text, begin, end, ids); });
    if (!status.ok()) ids.resize(before);
    if (const std::optional<uint32_t> joined = tokenizer_.parts_.joins) {
      const auto begin = ids.begin() + static_cast<ptrdiff_t>(before);
      ids.erase(std::unique(begin, ids.end(), [&](uint32_t a, uint32_t b) { return a == b && a == *joined; }),
                ids.end());
    }
    return status;
  }

 private:
  // Normalizes and encodes text that has no token that is matched before the normalizer.
  absl::Status EncodePart(std::string_view text, size_t begin, size_t end, std::vector<uint32_t>& ids) {
    pieces_.text.assign(text.substr(begin, end - begin));
    pieces_.limit = kMayGrow + kMaxGrowth * pieces_.text.size();
    pieces_.from_first = 0;
    if (begin == 0 && !tokenizer_.parts_.normalizer_repairs) NextScalar(pieces_.text, pieces_.from_first);
    CAIRN_RETURN_IF_ERROR(Run(tokenizer_.parts_.normalizer, pieces_));
    if (tokenizer_.second_.empty()) return EncodePieces(ids);
    const std::string normal = std::move(pieces_.text);
    const size_t from_first = pieces_.from_first;
    return tokenizer_.second_.Encode(normal, ids, [&](size_t from, size_t to) {
      pieces_.text.assign(normal, from, to - from);
      pieces_.from_first = from_first > from ? from_first - from : 0;
      return EncodePieces(ids);
    });
  }

  // The words that the spans are. Long ones are cut into pieces that can be encoded on their own.
  class Words {
   public:
    Words(const WordModel& model, const Pieces& pieces)
        : model_(&model), text_(pieces.text), span_(pieces.spans.data()), last_(span_ + pieces.spans.size()) {}

    bool Next(std::string_view& word) {
      if (from_ == 0 && span_ == last_) return false;
      word = text_.substr(span_->begin, span_->end - span_->begin);
      const size_t until = word.size() > kLongWord ? model_->PieceEnd(word, from_) : word.size();
      const bool done = until == word.size();
      word = word.substr(from_, until - from_);
      from_ = done ? 0 : until;
      span_ += done;
      return true;
    }

   private:
    const WordModel* model_;
    std::string_view text_;
    const Span* span_;
    const Span* last_;
    size_t from_ = 0;  // what was given of the span's word
  };

  absl::Status EncodePieces(std::vector<uint32_t>& ids) {
    if (pieces_.text.empty()) return absl::OkStatus();
    pieces_.spans.assign(1, {0, pieces_.text.size()});
    CAIRN_RETURN_IF_ERROR(Run(tokenizer_.parts_.pre_tokenizer, pieces_));
    const WordModel& model = *tokenizer_.parts_.model;
    absl::Status status;
    cache_.Encode(Words(model, pieces_), pieces_.text.data() + pieces_.text.size(), ids,
                  [&](std::span<const std::string_view> words, EncodedWords& made) {
                    status = model.EncodeAll(words, scratch_, made);
                    return status.ok();
                  });
    return status;
  }

  const PipelineTokenizer& tokenizer_;
  std::string repaired_;
  Pieces pieces_;
  IdCache cache_;
  WordScratch scratch_;
};

absl::StatusOr<std::unique_ptr<PipelineTokenizer>> PipelineTokenizer::Create(Parts parts) {
  std::unique_ptr<PipelineTokenizer> tokenizer(new PipelineTokenizer(std::move(parts)));
  std::vector<AddedToken> first, second;
  std::vector<std::string> normal;
  for (const AddedToken& token : tokenizer->parts_.added) {
    if (!token.normalized) {
      first.push_back(token);
      continue;
    }
    Pieces pieces{.text = token.content, .limit = kMayGrow, .from_first = 0, .spans = {}};
    CAIRN_RETURN_IF_ERROR(Run(tokenizer->parts_.normalizer, pieces));
    second.push_back(token);
    normal.push_back(std::move(pieces.text));
  }
  tokenizer->first_ = AddedTokens(std::move(first));
  tokenizer->second_ = AddedTokens(std::move(second), normal);
  return tokenizer;
}

std::unique_ptr<Encoder> PipelineTokenizer::NewEncoder() const { return std::make_unique<PipelineEncoder>(*this); }

std::optional<uint32_t> PipelineTokenizer::IdOf(std::string_view token) const {
  for (const AddedToken& added : parts_.added) {
    if (added.content == token) return added.id;
  }
  return parts_.model->IdOf(token);
}

}  // namespace cairn::corpus
