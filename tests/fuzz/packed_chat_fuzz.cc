#include <cstdint>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "corpus/bpe/byte_level.h"
#include "corpus/pipeline/load_tokenizer.h"
#include "corpus/sft/chat_renderer.h"
#include "corpus/sft/sample_encoder.h"
#include "corpus/sft/token_places.h"

namespace {

using namespace cairn::corpus;  // NOLINT: the whole file is this target

// A byte-level tokenizer with some merges and added tokens, which may add a blank before a text.
std::string TokenizerJson(bool adds_blank) {
  nlohmann::json vocab;
  for (int byte = 0; byte < 256; ++byte) vocab[ToByteLevel(std::string(1, static_cast<char>(byte)))] = byte;
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"a", "b"}, {ToByteLevel(" "), "a"}, {ToByteLevel("\xF0"), ToByteLevel("\x9F")}};
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [left, right] : merges) {
    const size_t id = vocab.size();
    vocab[left + right] = id;
    list.push_back({left, right});
  }
  nlohmann::json added = nlohmann::json::array();
  for (const char* const token : {"<|im_start|>", "<|im_end|>"}) {
    added.push_back({{"id", vocab.size() + added.size()},
                     {"content", token},
                     {"special", true},
                     {"normalized", false},
                     {"lstrip", false},
                     {"rstrip", added.size() == 1},
                     {"single_word", false}});
  }
  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", adds_blank}, {"trim_offsets", false}, {"use_regex", true}};
  return nlohmann::json{{"version", "1.0"},
                        {"added_tokens", added},
                        {"pre_tokenizer", byte_level},
                        {"decoder", byte_level},
                        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", list}}}}
      .dump();
}

class Subject {
 public:
  explicit Subject(bool adds_blank)
      : json_(TokenizerJson(adds_blank)),
        tokenizer_(ParsePipeline(json_, "tokenizer.json")),
        places_(TokenPlaces::Create(json_, "tokenizer.json")) {
    if (!tokenizer_.ok() || !places_.ok()) std::abort();
    encoder_ = (*tokenizer_)->NewEncoder();
  }

  // If a text is UTF-8, each of its tokens is found, in order. A token is trained on exactly if it has a byte of an
  // answer.
  void Check(const RenderedChat& chat) const {
    std::vector<uint32_t> ids;
    if (!encoder_->Encode(chat.text, ids).ok()) return;
    std::vector<ByteRange> places;
    const bool found = places_->Find(chat.text, ids, places).ok();
    const bool utf8 = nlohmann::json(chat.text).dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore) ==
                      nlohmann::json(chat.text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (!found) {
      if (utf8) std::abort();
      return;
    }
    if (places.size() != ids.size()) std::abort();
    size_t at = 0;
    for (const ByteRange& place : places) {
      if (place.begin > place.end || place.end > chat.text.size() || place.begin < at) std::abort();
      at = place.begin;
    }
    for (size_t i = 1; i < chat.answers.size(); ++i) {
      if (chat.answers[i].begin < chat.answers[i - 1].end) return;  // a renderer's answers ascend
    }
    std::vector<bool> trained(ids.size(), false);
    TrainOn(chat.answers, places, trained);
    for (size_t i = 0; i < ids.size(); ++i) {
      bool expected = false;
      for (const ByteRange& answer : chat.answers) {
        expected |= places[i].begin < answer.end && places[i].end > answer.begin;
      }
      if (trained[i] != expected) std::abort();
    }
  }

 private:
  const std::string json_;
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer_;
  const absl::StatusOr<TokenPlaces> places_;
  std::unique_ptr<Encoder> encoder_;
};

}  // namespace

// What a renderer sends is read or refused.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Subject plain(false), adding(true);
  RenderedChat chat;
  if (!ParseRenderedChat({reinterpret_cast<const char*>(data), size}, chat).ok()) return 0;
  plain.Check(chat);
  adding.Check(chat);
  return 0;
}
