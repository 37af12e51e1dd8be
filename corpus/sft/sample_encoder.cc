#include "corpus/sft/sample_encoder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::corpus {
namespace {

void Leave(const std::vector<uint32_t>& never, Sample& sample) {
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    if (sample.trained[i] && std::ranges::find(never, sample.ids[i]) != never.end()) sample.trained[i] = false;
  }
}

std::string_view WithoutBlanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

class PairEncoder final : public SampleEncoder {
 public:
  PairEncoder(const PairOptions& options, const Tokenizer& tokenizer)
      : options_(options), parser_({options.prompt_key, options.answer_key}), encoder_(tokenizer.NewEncoder()) {
    // Where "x y" has the tokens of "x" and "y", the blank before the answer would become one more.
    if (options_.separator.starts_with(' ') && !BlankMatters()) options_.separator.erase(0, 1);
  }

  absl::Status Encode(std::string_view line, Sample& sample) override {
    if (const absl::Status parsed = parser_.Parse(line); !parsed.ok()) return WithPairAdvice(parsed);
    std::array<std::string_view, 2> texts;
    for (size_t i = 0; i < texts.size(); ++i) {
      const FieldValue& value = parser_.values()[i];
      const std::string& key = i == 0 ? options_.prompt_key : options_.answer_key;
      if (value.is_list) return MakeError(Reason::kBadJsonLine, absl::StrCat("the value of '", key, "' is a list"));
      texts[i] = WithoutBlanks(value.texts.front());
    }
    sample.ids.clear();
    answer_.clear();
    CAIRN_RETURN_IF_ERROR(EncodeText(texts[0], options_.prompt_key, sample.ids));
    CAIRN_RETURN_IF_ERROR(
        EncodeText(absl::StrCat(options_.separator, std::string(texts[1])), options_.answer_key, answer_));
    const size_t room = options_.most_tokens - (options_.end_of_text ? 1 : 0);
    if (sample.ids.size() + answer_.size() > room) {
      sample.ids.resize(room - std::min(room, answer_.size()));
      answer_.resize(std::min(room, answer_.size()));
    }
    sample.trained.assign(sample.ids.size(), false);
    sample.ids.insert(sample.ids.end(), answer_.begin(), answer_.end());
    if (options_.end_of_text) sample.ids.push_back(*options_.end_of_text);
    sample.trained.resize(sample.ids.size(), true);
    if (sample.ids.size() < 2) {
      return MakeError(Reason::kBadJsonLine, "prompt and answer together have fewer than two tokens");
    }
    Leave(options_.never_trained, sample);
    if (!texts[1].empty() &&
        std::find(sample.trained.begin() + 1, sample.trained.end(), true) == sample.trained.end()) {
      return MakeError(Reason::kBadJsonLine, "no token of the answer is left to train on");
    }
    return absl::OkStatus();
  }

 private:
  // The parser's advice names a flag that packs do not have.
  static absl::Status WithPairAdvice(const absl::Status& error) {
    if (!HasReason(error, Reason::kBadJsonLine) || MetadataOf(error)["next"].empty()) return error;
    return MakeError(
        Reason::kBadJsonLine, std::string(error.message()),
        {{"next",
          "Name the keys that the lines have by --prompt-key and --answer-key, or give --chat if they have "
          "messages."}});
  }
  absl::Status EncodeText(std::string_view text, const std::string& key, std::vector<uint32_t>& ids) {
    const absl::Status status = encoder_->Encode(text, ids);
    if (status.ok()) return status;
    return MakeError(Reason::kBadJsonLine, absl::StrCat("the text of '", key, "': ", std::string(status.message())));
  }
  bool BlankMatters() {
    std::vector<uint32_t> whole, parts;
    return !encoder_->Encode("x y", whole).ok() || !encoder_->Encode("x", parts).ok() ||
           !encoder_->Encode("y", parts).ok() || whole != parts;
  }

  PairOptions options_;
  DocumentParser parser_;
  const std::unique_ptr<Encoder> encoder_;
  std::vector<uint32_t> answer_;
};

class ChatEncoder final : public SampleEncoder {
 public:
  ChatEncoder(std::unique_ptr<ChatRenderer> renderer, const TokenPlaces& places, std::vector<uint32_t> never_trained,
              const Tokenizer& tokenizer)
      : renderer_(std::move(renderer)),
        token_places_(places),
        never_trained_(std::move(never_trained)),
        encoder_(tokenizer.NewEncoder()) {}

  absl::Status Encode(std::string_view line, Sample& sample) override {
    CAIRN_RETURN_IF_ERROR(renderer_->Render(line, chat_));
    sample.ids.clear();
    if (const absl::Status status = encoder_->Encode(chat_.text, sample.ids); !status.ok()) {
      return MakeError(Reason::kBadJsonLine, absl::StrCat("the conversation: ", std::string(status.message())));
    }
    if (sample.ids.empty()) return MakeError(Reason::kBadJsonLine, "the conversation has no tokens");
    CAIRN_RETURN_IF_ERROR(token_places_.Find(chat_.text, sample.ids, places_));
    sample.trained.assign(sample.ids.size(), false);
    TrainOn(chat_.answers, places_, sample.trained);
    Leave(never_trained_, sample);
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<ChatRenderer> renderer_;
  const TokenPlaces& token_places_;
  const std::vector<uint32_t> never_trained_;
  const std::unique_ptr<Encoder> encoder_;
  RenderedChat chat_;
  std::vector<ByteRange> places_;
};

}  // namespace

std::unique_ptr<SampleEncoder> NewPairEncoder(const PairOptions& options, const Tokenizer& tokenizer) {
  return std::make_unique<PairEncoder>(options, tokenizer);
}

std::unique_ptr<SampleEncoder> NewChatEncoder(std::unique_ptr<ChatRenderer> renderer, const TokenPlaces& places,
                                              std::vector<uint32_t> never_trained, const Tokenizer& tokenizer) {
  return std::make_unique<ChatEncoder>(std::move(renderer), places, std::move(never_trained), tokenizer);
}

std::vector<uint32_t> NeverTrained(const TokenPlaces& places) {
  static constexpr std::string_view kTokens[] = {
      "<|im_start|>",
      "<|vision_start|>",
      "<|vision_end|>",
      "<|vision_pad|>",
      "<|image_pad|>",
      "<|video_pad|>",
      "<|AUDIO|>",
      "<|audio_bos|>",
      "<|audio_eos|>",
      "<image>",
      "<pad>",
      "<|begin_of_text|>",
      "<|step_id|>",
      "<|start_header_id|>",
      "<|python_tag|>",
      "<|finetune_right_pad_id|>",
      "<|end_header_id|>",
      "<|image|>",
      "<end_of_image>",
      "<image_soft_token>",
      "<audio_soft_token>",
      "<start_of_audio>",
      "<end_of_audio>",
      "<start_of_image>",
  };
  return places.AddedAmong(kTokens);
}

void TrainOn(const std::vector<ByteRange>& answers, const std::vector<ByteRange>& places, std::vector<bool>& trained) {
  size_t answer = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    while (answer < answers.size() && places[i].begin >= answers[answer].end) ++answer;
    if (answer == answers.size()) return;
    if (places[i].end > answers[answer].begin) trained[i] = true;
  }
}

}  // namespace cairn::corpus
