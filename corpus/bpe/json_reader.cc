#include "corpus/bpe/json_reader.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::corpus {

namespace json = simdjson::dom;

absl::Status JsonReader::Bad(const std::string& what) const {
  return MakeError(Reason::kBadTokenizer, absl::StrCat(name, ": ", what), {{"file", name}});
}

absl::Status JsonReader::Unsupported(const std::string& what) const {
  return MakeError(Reason::kUnsupported, absl::StrCat(name, ": ", what, " is not supported"), {{"file", name}});
}

absl::StatusOr<json::element> JsonReader::Parse(json::parser& parser, const std::string& content) const {
  json::element document;
  if (const auto error = parser.parse(content).get(document)) {
    return Bad(absl::StrCat("not JSON: ", simdjson::error_message(error)));
  }
  return document;
}

absl::StatusOr<bool> JsonReader::Bool(json::object object, std::string_view key, bool otherwise) const {
  json::element value;
  if (object.at_key(key).get(value) || value.is_null()) return otherwise;
  bool result;
  if (value.get(result)) return Bad(absl::StrCat("'", std::string(key), "' is neither true nor false"));
  return result;
}

absl::StatusOr<std::string> JsonReader::String(json::object object, std::string_view key) const {
  json::element value;
  if (object.at_key(key).get(value) || value.is_null()) return std::string();
  std::string_view result;
  if (value.get(result)) return Bad(absl::StrCat("'", std::string(key), "' is no string"));
  return std::string(result);
}

absl::StatusOr<uint32_t> JsonReader::Id(json::element value, std::string_view token) const {
  uint64_t id;
  if (value.get(id) || id > kMaxTokenId) {
    return Bad(
        absl::StrCat("the id of '", std::string(token.substr(0, 100)), "' is no number from 0 to ", kMaxTokenId));
  }
  return static_cast<uint32_t>(id);
}

absl::StatusOr<TokenIds> JsonReader::Vocab(json::element value) const {
  json::object object;
  if (value.get(object)) return Bad("the vocabulary is no JSON object");
  TokenIds vocab;
  for (const auto& [token, id] : object) {
    CAIRN_ASSIGN_OR_RETURN(const uint32_t number, Id(id, token));
    vocab.emplace_back(std::string(token), number);
  }
  return vocab;
}

absl::StatusOr<std::pair<std::string, std::string>> JsonReader::SplitMerge(std::string_view text,
                                                                           const std::string& where) const {
  const size_t blank = text.find(' ');
  if (blank == std::string_view::npos || blank == 0 || blank + 1 == text.size() ||
      text.find(' ', blank + 1) != std::string_view::npos) {
    return Bad(absl::StrCat(where, ", '", std::string(text.substr(0, 100)), "', is not two tokens"));
  }
  return std::pair(std::string(text.substr(0, blank)), std::string(text.substr(blank + 1)));
}

absl::StatusOr<TokenPairs> JsonReader::Merges(json::element value) const {
  TokenPairs result;
  json::array merges;
  if (value.get(merges)) return Bad("model.merges is no list");
  for (const json::element merge : merges) {
    const std::string where = absl::StrCat("merge ", result.size() + 1);
    std::string_view text;
    json::array pair;
    if (!merge.get(text)) {
      CAIRN_ASSIGN_OR_RETURN(auto parts, SplitMerge(text, where));
      result.push_back(std::move(parts));
    } else if (std::string_view left, right;
               !merge.get(pair) && pair.size() == 2 && !pair.at(0).get(left) && !pair.at(1).get(right)) {
      result.emplace_back(left, right);
    } else {
      return Bad(absl::StrCat(where, " is neither \"a b\" nor [\"a\", \"b\"]"));
    }
  }
  return result;
}

absl::StatusOr<std::vector<AddedToken>> JsonReader::Added(json::element value, const TokenIds& vocab) const {
  std::vector<AddedToken> added;
  absl::flat_hash_map<std::string, uint32_t> known(vocab.begin(), vocab.end());
  auto next = static_cast<uint32_t>(known.size());
  json::array tokens;
  if (value.is_null()) return added;
  if (value.get(tokens)) return Bad("added_tokens is no list");
  for (const json::element element : tokens) {
    json::object object;
    json::element id;
    if (element.get(object) || object.at_key("id").get(id)) return Bad("an added token has no id");
    AddedToken token;
    CAIRN_ASSIGN_OR_RETURN(token.content, String(object, "content"));
    if (token.content.empty()) return Bad("an added token is empty");
    CAIRN_RETURN_IF_ERROR(Id(id, token.content).status());
    const auto [it, is_new] = known.try_emplace(token.content, next);
    if (is_new) ++next;
    token.id = it->second;
    CAIRN_ASSIGN_OR_RETURN(token.special, Bool(object, "special", false));
    CAIRN_ASSIGN_OR_RETURN(token.normalized, Bool(object, "normalized", !token.special));
    CAIRN_ASSIGN_OR_RETURN(token.single_word, Bool(object, "single_word", false));
    CAIRN_ASSIGN_OR_RETURN(token.lstrip, Bool(object, "lstrip", false));
    CAIRN_ASSIGN_OR_RETURN(token.rstrip, Bool(object, "rstrip", false));
    added.push_back(std::move(token));
  }
  return added;
}

}  // namespace cairn::corpus
