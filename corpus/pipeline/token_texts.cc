#include "corpus/pipeline/token_texts.h"

#include <simdjson.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/byte_level.h"
#include "corpus/bpe/json_reader.h"
#include "corpus/bpe/load_tokenizer.h"
#include "corpus/bpe/tokenizer_files.h"

namespace cairn::corpus {
namespace {

namespace json = simdjson::dom;

using Texts = std::vector<std::pair<uint32_t, std::string>>;

absl::StatusOr<TokenIds> VocabOf(const JsonReader& reader, json::element vocab) {
  if (!vocab.is_array()) return reader.Vocab(vocab);
  TokenIds ids;
  json::array entries;
  if (vocab.get(entries)) return reader.Bad("model.vocab is no list");
  for (const json::element entry : entries) {
    json::array pair;
    std::string_view token;
    if (entry.get(pair) || pair.size() == 0 || pair.at(0).get(token)) return reader.Bad("model.vocab has no tokens");
    ids.emplace_back(token, static_cast<uint32_t>(ids.size()));
  }
  return ids;
}

Texts ToTexts(const TokenIds& vocab, const std::vector<AddedToken>& added) {
  std::set<std::string> as_they_are;
  for (const AddedToken& token : added) as_they_are.insert(token.content);
  const bool byte_level = std::all_of(vocab.begin(), vocab.end(), [&](const auto& token) {
    return as_they_are.contains(token.first) || FromByteLevel(token.first).has_value();
  });
  Texts texts;
  for (const auto& [text, id] : vocab) {
    if (as_they_are.contains(text)) continue;
    texts.emplace_back(id, byte_level ? *FromByteLevel(text) : text);
  }
  return texts;
}

absl::StatusOr<Texts> OfTokenizerJson(const std::string& content, const std::string& name) {
  const JsonReader reader{name};
  json::parser parser;
  CAIRN_ASSIGN_OR_RETURN(const json::element document, reader.Parse(parser, content));
  json::object object, model;
  json::element member;
  if (document.get(object)) return reader.Bad("not a JSON object");
  if (object.at_key("model").get(model) || model.at_key("vocab").get(member)) return reader.Bad("has no vocabulary");
  CAIRN_ASSIGN_OR_RETURN(const TokenIds vocab, VocabOf(reader, member));
  std::vector<AddedToken> added;
  if (!object.at_key("added_tokens").get(member)) {
    CAIRN_ASSIGN_OR_RETURN(added, reader.Added(member, vocab));
  }
  return ToTexts(vocab, added);
}

}  // namespace

absl::StatusOr<Texts> ReadTokenTexts(const std::string& path) {
  const auto file = FindTokenizerFile(path);
  const std::filesystem::path name = file.ok() ? *file : path;
  if (!file.ok() || name.extension() == ".model") {
    return MakeError(Reason::kUnsupported, absl::StrCat(path, " has no list of tokens that is read"), {{"file", path}});
  }
  CAIRN_ASSIGN_OR_RETURN(const std::string content, ReadTokenizerFile(*file));
  if (name.filename() == "vocab.json") {
    CAIRN_ASSIGN_OR_RETURN(const TokenIds vocab, ParseVocabJson(content, *file));
    return ToTexts(vocab, {});
  }
  if (name.extension() == ".tiktoken") {
    CAIRN_ASSIGN_OR_RETURN(const auto ranks, ParseTiktoken(content, *file));
    Texts texts;
    for (const auto& [bytes, rank] : ranks) texts.emplace_back(rank, bytes);
    return texts;
  }
  return OfTokenizerJson(content, *file);
}

}  // namespace cairn::corpus
