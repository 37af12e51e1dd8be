#include "corpus/pipeline/load_tokenizer.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/bpe_tokenizer.h"
#include "corpus/bpe/build_tokenizer.h"
#include "corpus/bpe/json_reader.h"
#include "corpus/bpe/tokenizer_files.h"
#include "corpus/io/input_path.h"
#include "corpus/pipeline/normal_form.h"
#include "corpus/pipeline/normalizer.h"
#include "corpus/pipeline/pipeline_tokenizer.h"
#include "corpus/pipeline/pre_tokenizer.h"
#include "corpus/pipeline/sentencepiece.h"
#include "corpus/pipeline/unigram.h"
#include "corpus/pipeline/word_model.h"

namespace cairn::corpus {
namespace {

namespace fs = std::filesystem;
namespace json = simdjson::dom;

// Returns the number that Hugging Face tokenizers reads for the shortest decimal text of `value`. Its JSON parser takes
// the digits as a whole number and divides by a power of ten, so the last bit may differ, which decides between ways
// to cut a word whose scores are equal otherwise.
double ScoreOf(double value) {
  char text[32];
  const char* const end = std::to_chars(text, text + sizeof(text), value, std::chars_format::scientific).ptr;
  uint64_t digits = 0;
  int exponent = 0;
  const char* c = text;
  const bool negative = *c == '-';
  bool fraction = false;
  for (c += negative; c != end && *c != 'e'; ++c) {
    if (*c == '.') {
      fraction = true;
    } else if (*c >= '0' && *c <= '9') {
      digits = digits * 10 + static_cast<uint64_t>(*c - '0');
      exponent -= fraction;
    } else {
      return value;  // infinite, or no number
    }
  }
  int written = 0;
  if (c != end) {
    c += c[1] == '+' ? 2 : 1;
    std::from_chars(c, end, written);
  }
  exponent += written;
  // A power of ten up to 22 is exact.
  if (exponent > 22 || exponent < -22) return value;
  double power = 1;
  for (int i = 0; i < std::abs(exponent); ++i) power *= 10;
  const double result = exponent < 0 ? static_cast<double>(digits) / power : static_cast<double>(digits) * power;
  return negative ? -result : result;
}

class ModelReader {
 public:
  ModelReader(const JsonReader& reader, json::object model) : reader_(reader), model_(model) {}

  // Reads the model. If it reads bytes, it takes the last step of the pre-tokenizer off, which writes them as text.
  absl::StatusOr<std::unique_ptr<WordModel>> Read(PreTokenizerSteps& pre_tokenizer) {
    CAIRN_ASSIGN_OR_RETURN(std::string type, reader_.String(model_, "type"));
    json::element vocab;
    if (model_.at_key("vocab").get(vocab)) return reader_.Bad("model.vocab is missing");
    if (type == "Unigram" || (type.empty() && vocab.is_array())) return Unigram(vocab);
    json::element member;
    if (type.empty() && !model_.at_key("merges").get(member)) type = "BPE";
    if (type != "BPE" && type != "WordPiece" && type != "WordLevel") {
      return reader_.Unsupported(absl::StrCat("a model of type ", type));
    }
    CAIRN_ASSIGN_OR_RETURN(vocab_, reader_.Vocab(vocab));
    if (type == "BPE") return Bpe(pre_tokenizer);
    TokenMap map(vocab_.begin(), vocab_.end());
    CAIRN_ASSIGN_OR_RETURN(const std::string unknown, reader_.String(model_, "unk_token"));
    const auto it = map.find(unknown);
    const auto unknown_id = it == map.end() ? std::nullopt : std::optional<uint32_t>(it->second);
    if (type == "WordLevel") return WordLevelModel(std::move(map), unknown_id);
    WordPieceRules rules = {.unknown = unknown_id, .prefix = "##"};
    if (!model_.at_key("continuing_subword_prefix").get(member)) {
      CAIRN_ASSIGN_OR_RETURN(rules.prefix, reader_.String(model_, "continuing_subword_prefix"));
    }
    if (!model_.at_key("max_input_chars_per_word").get(member) && member.get(rules.max_characters)) {
      return reader_.Bad("max_input_chars_per_word is no number");
    }
    return WordPieceModel(std::move(map), std::move(rules));
  }

  // The texts of the model's tokens with their ids. Valid after Read().
  const TokenIds& vocab() const { return vocab_; }

 private:
  absl::StatusOr<std::unique_ptr<WordModel>> Unigram(json::element vocab) {
    UnigramRules rules;
    json::array entries;
    if (vocab.get(entries)) return reader_.Bad("model.vocab is no list");
    for (const json::element entry : entries) {
      json::array pair;
      std::string_view token;
      double score;
      if (entry.get(pair) || pair.size() != 2 || pair.at(0).get(token) || pair.at(1).get(score)) {
        return reader_.Bad(absl::StrCat("entry ", rules.vocab.size(), " of model.vocab is not [token, score]"));
      }
      if (rules.vocab.size() > kMaxTokenId) return reader_.Bad("the vocabulary has more than 2^24 tokens");
      vocab_.emplace_back(token, static_cast<uint32_t>(rules.vocab.size()));
      rules.vocab.push_back({.text = std::string(token), .score = ScoreOf(score)});
    }
    json::element unknown;
    if (!model_.at_key("unk_id").get(unknown) && !unknown.is_null()) {
      CAIRN_ASSIGN_OR_RETURN(rules.unknown, reader_.Id(unknown, "unk_id"));
      if (*rules.unknown >= rules.vocab.size()) return reader_.Bad("unk_id is beyond the vocabulary");
    }
    for (const char* key : {"alpha", "nbest_size"}) {
      if (!model_.at_key(key).get(unknown) && !unknown.is_null()) return reader_.Unsupported(key);
    }
    CAIRN_ASSIGN_OR_RETURN(rules.byte_fallback, reader_.Bool(model_, "byte_fallback", false));
    return UnigramModel(rules);
  }

  absl::StatusOr<std::unique_ptr<WordModel>> Bpe(PreTokenizerSteps& pre_tokenizer) {
    json::element member;
    double dropout = 0;
    if (!model_.at_key("dropout").get(member) && !member.is_null() && (member.get(dropout) || dropout != 0)) {
      return reader_.Unsupported("dropout");
    }
    CAIRN_ASSIGN_OR_RETURN(const std::string prefix, reader_.String(model_, "continuing_subword_prefix"));
    CAIRN_ASSIGN_OR_RETURN(const std::string suffix, reader_.String(model_, "end_of_word_suffix"));
    CAIRN_ASSIGN_OR_RETURN(const bool byte_fallback, reader_.Bool(model_, "byte_fallback", false));
    if (model_.at_key("merges").get(member)) return reader_.Bad("model.merges is missing");
    CAIRN_ASSIGN_OR_RETURN(const TokenPairs merges, reader_.Merges(member));
    BpeModelParts parts = {.vocab = vocab_, .merges = merges, .prefix = prefix.size()};
    CAIRN_ASSIGN_OR_RETURN(parts.ignore_merges, reader_.Bool(model_, "ignore_merges", false));
    CAIRN_ASSIGN_OR_RETURN(parts.unknown, reader_.String(model_, "unk_token"));
    CAIRN_ASSIGN_OR_RETURN(parts.fuse_unknown, reader_.Bool(model_, "fuse_unk", false));
    parts.by_bytes = pre_tokenizer.ends_in_byte_level && prefix.empty() && suffix.empty() && !byte_fallback;
    if (parts.by_bytes) pre_tokenizer.steps.pop_back();
    BpeModel model;
    if (!parts.by_bytes) model.set_characters(prefix, suffix, byte_fallback);
    CAIRN_RETURN_IF_ERROR(FillModel(parts, reader_.name, model));
    return BpeWordModel(std::move(model), parts.by_bytes);
  }

  const JsonReader& reader_;
  const json::object model_;
  TokenIds vocab_;
};

absl::Status RefuseCutsAndFills(const JsonReader& reader, json::object object) {
  json::element member;
  if (!object.at_key("truncation").get(member) && !member.is_null()) return reader.Unsupported("truncation");
  json::object padding, strategy;
  if (!object.at_key("padding").get(padding) && !padding.at_key("strategy").get(strategy)) {
    return reader.Unsupported("padding to a fixed length");
  }
  return absl::OkStatus();
}

// The normal forms of text, by the names of their normalizers.
constexpr std::pair<std::string_view, NormalForm> kForms[] = {
    {"NFC", NormalForm::kNfc}, {"NFD", NormalForm::kNfd}, {"NFKC", NormalForm::kNfkc}, {"NFKD", NormalForm::kNfkd}};

// Byte-level BPE of text in a normal form is encoded as other byte-level BPE is. UNIMPLEMENTED (UNSUPPORTED): it is
// something else. Else as BuildTokenizer.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseNormalized(const std::string& content, const std::string& name) {
  std::vector<std::string_view> names;
  for (const auto& [type, form] : kForms) names.push_back(type);
  CAIRN_ASSIGN_OR_RETURN(const TokenizerFile file, ParseTokenizerJson(content, name, names));
  CAIRN_ASSIGN_OR_RETURN(BpeTokenizer::Parts parts, BuildTokenizer(file, name));
  for (const auto& [type, form] : kForms) {
    if (file.normalizer != type) continue;
    parts.normalize = [form = form](std::string_view text, std::string& room) -> std::string_view {
      if (IsSurelyNormal(form, text)) return text;
      room.assign(text);
      Normalize(form, room);
      return room;
    };
  }
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParsePipeline(const std::string& content, const std::string& name) {
  const JsonReader reader{name};
  json::parser parser;
  CAIRN_ASSIGN_OR_RETURN(const json::element document, reader.Parse(parser, content));
  json::object object, model;
  if (document.get(object)) return reader.Bad("not a JSON object");
  if (object.at_key("model").get(model)) return reader.Bad("has no model");
  CAIRN_RETURN_IF_ERROR(RefuseCutsAndFills(reader, object));
  PipelineTokenizer::Parts parts;
  PreTokenizerSteps pre_tokenizer;
  json::element member;
  json::object normalizer;
  if (!object.at_key("normalizer").get(normalizer)) {
    CAIRN_ASSIGN_OR_RETURN(const std::string type, reader.String(normalizer, "type"));
    if (std::any_of(std::begin(kForms), std::end(kForms), [&](const auto& form) { return form.first == type; })) {
      absl::StatusOr<std::unique_ptr<Tokenizer>> normalized = ParseNormalized(content, name);
      if (normalized.ok() || normalized.status().code() != absl::StatusCode::kUnimplemented) return normalized;
    }
  }
  if (!object.at_key("normalizer").get(member)) CAIRN_RETURN_IF_ERROR(ReadNormalizer(reader, member, parts.normalizer));
  if (!object.at_key("pre_tokenizer").get(member)) {
    CAIRN_ASSIGN_OR_RETURN(pre_tokenizer, ReadPreTokenizer(reader, member));
  }
  ModelReader model_reader(reader, model);
  CAIRN_ASSIGN_OR_RETURN(parts.model, model_reader.Read(pre_tokenizer));
  parts.pre_tokenizer = std::move(pre_tokenizer.steps);
  if (!object.at_key("added_tokens").get(member)) {
    CAIRN_ASSIGN_OR_RETURN(parts.added, reader.Added(member, model_reader.vocab()));
  }
  for (const auto& [text, id] : model_reader.vocab()) parts.vocab_size = std::max(parts.vocab_size, id + 1);
  for (const AddedToken& token : parts.added) parts.vocab_size = std::max(parts.vocab_size, token.id + 1);
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<PipelineTokenizer> tokenizer, PipelineTokenizer::Create(std::move(parts)));
  return tokenizer;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path, const BpeLoadOptions& options) {
  const fs::path model = IsInputDirectory(path) ? fs::path(path) / "tokenizer.model" : fs::path(path);
  if (model.extension() == ".model" && InputStands(model.string()) &&
      !(model != path && InputStands((fs::path(path) / "tokenizer.json").string()))) {
    CAIRN_ASSIGN_OR_RETURN(const std::string content, ReadTokenizerFile(model.string()));
    return ParseSentencePiece(content, model.string());
  }
  // Byte-level BPE with one rule has an encoder of its own, which is faster.
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = LoadBpeTokenizer(path, options);
  if (tokenizer.ok() || tokenizer.status().code() != absl::StatusCode::kUnimplemented) return tokenizer;
  CAIRN_ASSIGN_OR_RETURN(const std::string file, FindTokenizerFile(path));
  CAIRN_ASSIGN_OR_RETURN(const std::string content, ReadTokenizerFile(file));
  return ParsePipeline(content, file);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadMegatronTiktoken(const std::string& path, const std::string& pattern,
                                                                uint32_t vocab_size, uint32_t specials) {
  static constexpr std::string_view kSpecials[] = {"<unk>", "<s>", "</s>", "<mask>", "<pad>", "<cls>", "<sep>"};
  static constexpr char kV1[] = R"([^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
  static constexpr char kV2[] =
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm})"
      R"(\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  if ((pattern != "v1" && pattern != "v2") || specials < std::size(kSpecials) || specials >= vocab_size) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("the pattern ", pattern, " with ", specials, " special tokens of ", vocab_size,
                                  ": the pattern must be v1 or v2, and there must be ", std::size(kSpecials),
                                  " special tokens or more, and fewer than tokens"));
  }
  CAIRN_ASSIGN_OR_RETURN(const std::string content, ReadTokenizerFile(path));
  CAIRN_ASSIGN_OR_RETURN(auto ranks, ParseTiktokenJson(content, path));
  if (ranks.size() < vocab_size - specials) {
    return JsonReader{path}.Bad(absl::StrCat("has ", ranks.size(), " tokens; with ", specials, " special ones, ",
                                             vocab_size, " were asked for"));
  }
  ranks.resize(vocab_size - specials);
  for (auto& [bytes, rank] : ranks) rank += specials;
  std::vector<AddedToken> added;
  for (uint32_t id = 0; id < specials; ++id) {
    const bool named = id < std::size(kSpecials);
    added.push_back({.content = named ? std::string(kSpecials[id]) : absl::StrCat("<SPECIAL_", id, ">"), .id = id});
  }
  CAIRN_ASSIGN_OR_RETURN(BpeTokenizer::Parts parts, BuildTiktoken(ranks, added, pattern == "v1" ? kV1 : kV2, path));
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace cairn::corpus
