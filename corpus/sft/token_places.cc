#include "corpus/sft/token_places.h"

#include <simdjson.h>

#include <algorithm>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/byte_level.h"
#include "corpus/bpe/json_reader.h"
#include "corpus/unicode/class_table.h"

namespace cairn::corpus {
namespace {

namespace json = simdjson::dom;

constexpr size_t kNowhere = std::string_view::npos;

bool IsPartOfCharacter(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Returns where the white space from `at` on ends.
size_t BlanksEnd(std::string_view text, size_t at) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(text.data());
  while (at < text.size()) {
    const Character character = DecodeCharacter(bytes + at, bytes + text.size());
    if ((character.char_class & kSpace) == 0) break;
    at += character.length;
  }
  return at;
}

// Returns the parts of this type that a step of the tokenizer, or a sequence of steps, has under `key`.
std::vector<json::object> PartsOf(json::element root, std::string_view key, std::string_view type) {
  std::vector<json::object> found;
  const auto add = [&](json::element part) {
    std::string_view name;
    json::object object;
    if (part["type"].get(name) != simdjson::SUCCESS || name != type) return;
    if (part.get(object) == simdjson::SUCCESS) found.push_back(object);
  };
  json::element step;
  if (root[key].get(step) != simdjson::SUCCESS) return found;
  add(step);
  for (const char* const list : {"normalizers", "pretokenizers", "processors", "decoders"}) {
    json::array parts;
    if (step[list].get(parts) != simdjson::SUCCESS) continue;
    for (const json::element one : parts) add(one);
  }
  return found;
}

// Returns the place that is `count` characters behind `at`, or the end of the text.
size_t Forward(std::string_view text, size_t at, size_t count) {
  for (; count > 0 && at < text.size(); --count) {
    ++at;
    while (at < text.size() && IsPartOfCharacter(text[at])) ++at;
  }
  return at;
}

// Returns the text of a token of SentencePiece's kind.
std::string PlainText(std::string_view token, bool byte_fallback) {
  uint32_t byte = 0;
  if (byte_fallback && token.size() == 6 && token.starts_with("<0x") && token.back() == '>' &&
      absl::SimpleHexAtoi(std::string(token.substr(3, 2)), &byte)) {
    return std::string(1, static_cast<char>(byte));
  }
  return absl::StrReplaceAll(std::string(token), {{"\u2581", " "}});
}

}  // namespace

absl::StatusOr<TokenPlaces> TokenPlaces::Create(const std::string& tokenizer_json, const std::string& name) {
  const JsonReader reader{name};
  json::parser parser;
  CAIRN_ASSIGN_OR_RETURN(const json::element root, reader.Parse(parser, tokenizer_json));
  json::object model;
  if (root["model"].get(model) != simdjson::SUCCESS) return reader.Bad("it has no model");
  TokenPlaces places;
  places.name_ = name;
  CAIRN_ASSIGN_OR_RETURN(places.model_, reader.String(model, "type"));
  const std::vector<json::object> byte_levels = PartsOf(root, "pre_tokenizer", "ByteLevel");
  places.byte_level_ = !byte_levels.empty() || !PartsOf(root, "decoder", "ByteLevel").empty();
  places.adds_blanks_ = !places.byte_level_;
  for (const json::object& part : byte_levels) {
    CAIRN_ASSIGN_OR_RETURN(const bool adds, reader.Bool(part, "add_prefix_space", true));
    places.adds_blanks_ = places.adds_blanks_ || adds;
  }
  for (const json::object& part : PartsOf(root, "normalizer", "Prepend")) {
    CAIRN_ASSIGN_OR_RETURN(const std::string prepended, reader.String(part, "prepend"));
    places.prepends_ = places.prepends_ || prepended == "\u2581";
  }
  for (const char* const type : {"ByteLevel", "RobertaProcessing"}) {
    for (const json::object& part : PartsOf(root, "post_processor", type)) {
      CAIRN_ASSIGN_OR_RETURN(const bool trims, reader.Bool(part, "trim_offsets", true));
      CAIRN_ASSIGN_OR_RETURN(const bool keeps_first, reader.Bool(part, "add_prefix_space", true));
      if (places.byte_level_ && trims) places.trims_.push_back(keeps_first);
    }
  }
  CAIRN_ASSIGN_OR_RETURN(const bool byte_fallback, reader.Bool(model, "byte_fallback", false));
  TokenIds vocab;
  json::element value;
  if (model["vocab"].get(value) != simdjson::SUCCESS) return reader.Bad("the model has no vocabulary");
  json::array scored;
  if (value.get(scored) == simdjson::SUCCESS) {  // Unigram: lists of a text and its score
    for (const json::element entry : scored) {
      std::string_view text;
      if (entry.at(0).get(text) != simdjson::SUCCESS) return reader.Bad("an entry of the vocabulary has no text");
      vocab.emplace_back(std::string(text), static_cast<uint32_t>(vocab.size()));
      if (vocab.size() > kMaxTokenId) return reader.Bad("the vocabulary is too large");
    }
  } else {
    CAIRN_ASSIGN_OR_RETURN(vocab, reader.Vocab(value));
  }
  const auto put = [&](uint32_t id, Token token) {
    if (places.tokens_.size() <= id) places.tokens_.resize(id + size_t{1});
    places.tokens_[id] = std::move(token);
  };
  for (const auto& [text, id] : vocab) {
    if (!places.byte_level_) {
      put(id, {.text = PlainText(text, byte_fallback)});
    } else if (std::optional<std::string> bytes = FromByteLevel(text)) {
      put(id, {.text = *std::move(bytes)});
    }
  }
  if (root["added_tokens"].get(value) == simdjson::SUCCESS) {
    CAIRN_ASSIGN_OR_RETURN(std::vector<AddedToken> added, reader.Added(value, vocab));
    for (AddedToken& token : added) put(token.id, {std::move(token.content), true, token.lstrip, token.rstrip});
  }
  return places;
}

absl::Status TokenPlaces::CheckFinds() const {
  if (model_ != "WordPiece" && model_ != "WordLevel") return absl::OkStatus();
  return JsonReader{name_}.Unsupported(absl::StrCat("to find the tokens of a ", model_, " model in a text"));
}

// Returns where the next token begins, or kNowhere.
size_t TokenPlaces::Match(std::string_view text, size_t at, const Token& token, bool begins_piece,
                          ByteRange& place) const {
  const auto take = [&](size_t begin, std::string_view piece) {
    if (piece.empty() || !text.substr(begin).starts_with(piece)) return kNowhere;
    place = {begin, begin + piece.size()};
    return place.end;
  };
  if (token.added) {
    if (take(at, token.text) == kNowhere && (!token.lstrip || take(BlanksEnd(text, at), token.text) == kNowhere)) {
      return kNowhere;
    }
    place.begin = at;
    if (token.rstrip) place.end = BlanksEnd(text, place.end);
    return place.end;
  }
  // Takes a token whose blank the tokenizer has put before a word. The blank alone stands where the word begins.
  const auto take_without_blank = [&] {
    if (!adds_blanks_ || !token.text.starts_with(' ')) return kNowhere;
    if (token.text.size() > 1) return take(at, std::string_view(token.text).substr(1));
    place = {at, Forward(text, at, 1)};
    return at;
  };
  const size_t next = prepends_ && begins_piece ? take_without_blank() : kNowhere;
  if (next != kNowhere) return next;
  return take(at, token.text) != kNowhere ? place.end : take_without_blank();
}

// Leaves the blanks of a token out of its place, as the post-processor ByteLevel does in process_offsets.
void TokenPlaces::Trim(std::string_view text, const Token& token, bool first, ByteRange& place) const {
  if (token.added) return;
  const size_t begin = std::min(token.text.find_first_not_of(' '), token.text.size());
  const size_t trailing = token.text.size() - (token.text.find_last_not_of(' ') + 1);
  for (const bool keeps_first : trims_) {
    const bool keeps = keeps_first && begin > 0 && (first || place.begin == 0);
    place.begin = std::min(Forward(text, place.begin, begin - (keeps ? 1 : 0)), place.end);
    // All of what is taken from the end are blanks of the text, which have one byte each.
    if (place.end >= trailing) place.end = std::max(place.end - trailing, place.begin);
  }
}

absl::Status TokenPlaces::Find(std::string_view text, std::span<const uint32_t> ids,
                               std::vector<ByteRange>& places) const {
  places.clear();
  places.reserve(ids.size());
  size_t at = 0;
  bool begins_piece = true;
  const auto lost = [&] {
    return MakeError(Reason::kBadJsonLine,
                     absl::StrCat("the tokenizer has changed the text from byte ", at,
                                  " on, so its answers are not found in the tokens"),
                     {{"next",
                       "Bring the text into the normal form of the tokenizer before (usually NFC), or leave such lines "
                       "out by --skip-bad-lines."}});
  };
  for (const uint32_t id : ids) {
    ByteRange place;
    if (id >= tokens_.size()) return lost();
    const size_t next = Match(text, at, tokens_[id], begins_piece, place);
    if (next == kNowhere) return lost();
    at = next;
    while (place.begin > 0 && place.begin < place.end && IsPartOfCharacter(text[place.begin])) --place.begin;
    while (place.end < text.size() && place.begin < place.end && IsPartOfCharacter(text[place.end])) ++place.end;
    Trim(text, tokens_[id], places.empty(), place);
    begins_piece = tokens_[id].added;
    places.push_back(place);
  }
  return at < text.size() ? lost() : absl::OkStatus();
}

std::vector<uint32_t> TokenPlaces::AddedAmong(std::span<const std::string_view> texts) const {
  std::vector<uint32_t> found;
  for (uint32_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].added && std::ranges::find(texts, tokens_[id].text) != texts.end()) found.push_back(id);
  }
  return found;
}

}  // namespace cairn::corpus
