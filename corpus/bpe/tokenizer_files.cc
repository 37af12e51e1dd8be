#include "corpus/bpe/tokenizer_files.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/json_reader.h"
#include "corpus/bpe/scanners.h"

namespace cairn::corpus {
namespace {

namespace json = simdjson::dom;

constexpr size_t kMaxTokenBytes = 4096;

absl::Status Bad(const std::string& name, const std::string& what) {
  return MakeError(Reason::kBadTokenizer, absl::StrCat(name, ": ", what), {{"file", name}});
}

absl::Status Unsupported(const std::string& name, const std::string& what) {
  return MakeError(Reason::kUnsupported, absl::StrCat(name, ": ", what, " is not supported: only byte-level BPE is"),
                   {{"file", name}});
}

absl::Status ReadModel(json::element value, const std::string& name, TokenizerFile& file) {
  const JsonReader reader{name};
  json::object model;
  if (value.get(model)) return Bad(name, "has no model");
  std::string type;
  CAIRN_ASSIGN_OR_RETURN(type, reader.String(model, "type"));
  if (!type.empty() && type != "BPE") return Unsupported(name, absl::StrCat("a model of type ", type));
  json::element member;
  double dropout = 0;
  if (!model.at_key("dropout").get(member) && !member.is_null() && (member.get(dropout) || dropout != 0)) {
    return Unsupported(name, "dropout");
  }
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    std::string text;
    CAIRN_ASSIGN_OR_RETURN(text, reader.String(model, affix));
    if (!text.empty()) return Unsupported(name, absl::StrCat(affix, " '", text, "'"));
  }
  CAIRN_ASSIGN_OR_RETURN(const bool byte_fallback, reader.Bool(model, "byte_fallback", false));
  if (byte_fallback) return Unsupported(name, "byte_fallback");
  CAIRN_ASSIGN_OR_RETURN(file.ignore_merges, reader.Bool(model, "ignore_merges", false));
  CAIRN_ASSIGN_OR_RETURN(file.unknown, reader.String(model, "unk_token"));
  CAIRN_ASSIGN_OR_RETURN(file.fuse_unknown, reader.Bool(model, "fuse_unk", false));
  json::element vocab, merges;
  if (model.at_key("vocab").get(vocab)) return Bad(name, "model.vocab is missing");
  if (model.at_key("merges").get(merges)) return Bad(name, "model.merges is missing");
  CAIRN_ASSIGN_OR_RETURN(file.vocab, reader.Vocab(vocab));
  CAIRN_ASSIGN_OR_RETURN(file.merges, reader.Merges(merges));
  return absl::OkStatus();
}

// Returns the text with the escapes that a literal needs in a regular expression.
std::string EscapeRegex(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (static_cast<uint8_t>(c) < 0x80 && !absl::ascii_isalnum(static_cast<unsigned char>(c))) result += '\\';
    result += c;
  }
  return result;
}

absl::Status ReadByteLevel(json::object object, const std::string& name, bool after_split, TokenizerFile& file) {
  const JsonReader reader{name};
  CAIRN_ASSIGN_OR_RETURN(file.add_prefix_space, reader.Bool(object, "add_prefix_space", true));
  CAIRN_ASSIGN_OR_RETURN(const bool use_regex, reader.Bool(object, "use_regex", true));
  if (after_split) {
    if (use_regex) return Unsupported(name, "a Split before ByteLevel with use_regex");
    if (file.add_prefix_space) return Unsupported(name, "a Split before ByteLevel with add_prefix_space");
    return absl::OkStatus();
  }
  file.pattern = use_regex ? kGpt2Pattern : R"((?s:.)+)";
  return absl::OkStatus();
}

absl::Status ReadSplit(json::object object, const std::string& name, TokenizerFile& file) {
  const JsonReader reader{name};
  json::object pattern;
  if (object.at_key("pattern").get(pattern)) return Bad(name, "a Split has no pattern");
  CAIRN_ASSIGN_OR_RETURN(file.pattern, reader.String(pattern, "Regex"));
  if (file.pattern.empty()) {
    std::string literal;
    CAIRN_ASSIGN_OR_RETURN(literal, reader.String(pattern, "String"));
    if (literal.empty()) return Bad(name, "a Split has an empty pattern");
    file.pattern = EscapeRegex(literal);
  }
  std::string behavior;
  CAIRN_ASSIGN_OR_RETURN(behavior, reader.String(object, "behavior"));
  CAIRN_ASSIGN_OR_RETURN(const bool invert, reader.Bool(object, "invert", false));
  if (behavior == "Isolated" && !invert) return absl::OkStatus();
  if (behavior == "Removed" && invert) {
    // This drops what does not match, which is nothing if the expression matches everywhere.
    CAIRN_ASSIGN_OR_RETURN(const Pretokenizer pretokenizer, Pretokenizer::FromPattern(file.pattern));
    if (pretokenizer.has_safe_cuts()) return absl::OkStatus();
  }
  return Unsupported(name, absl::StrCat("a Split with behavior ", behavior, invert ? ", inverted," : ""));
}

absl::Status ReadPretokenizer(json::element value, const std::string& name, TokenizerFile& file) {
  const JsonReader reader{name};
  json::object object;
  if (value.get(object)) return Unsupported(name, "a tokenizer without a pre-tokenizer");
  std::string type;
  CAIRN_ASSIGN_OR_RETURN(type, reader.String(object, "type"));
  if (type == "ByteLevel") return ReadByteLevel(object, name, false, file);
  if (type != "Sequence") return Unsupported(name, absl::StrCat("the pre-tokenizer ", type));
  json::array steps;
  if (object.at_key("pretokenizers").get(steps)) return Bad(name, "a Sequence has no list of pre-tokenizers");
  std::vector<json::object> parts;
  std::vector<std::string> types;
  for (const json::element step : steps) {
    if (step.get(parts.emplace_back())) return Bad(name, "a pre-tokenizer is no object");
    CAIRN_ASSIGN_OR_RETURN(types.emplace_back(), reader.String(parts.back(), "type"));
  }
  if (types == std::vector<std::string>{"ByteLevel"}) return ReadByteLevel(parts[0], name, false, file);
  if (types == std::vector<std::string>{"Split", "ByteLevel"}) {
    CAIRN_RETURN_IF_ERROR(ReadSplit(parts[0], name, file));
    return ReadByteLevel(parts[1], name, true, file);
  }
  std::string list;
  for (const std::string& step : types) absl::StrAppend(&list, list.empty() ? "" : ", ", step);
  return Unsupported(name, absl::StrCat("the pre-tokenizer Sequence [", list, "]"));
}

absl::Status ReadNormalizer(json::element value, const std::string& name, std::span<const std::string_view> normalizers,
                            TokenizerFile& file) {
  const JsonReader reader{name};
  json::object object;
  if (value.get(object)) return absl::OkStatus();
  std::string type;
  CAIRN_ASSIGN_OR_RETURN(type, reader.String(object, "type"));
  json::array steps;
  if (type == "Sequence" && !object.at_key("normalizers").get(steps) && steps.size() == 0) return absl::OkStatus();
  if (std::find(normalizers.begin(), normalizers.end(), type) == normalizers.end()) {
    return Unsupported(name, absl::StrCat("the normalizer ", type));
  }
  file.normalizer = type;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerFile> ParseTokenizerJson(const std::string& content, const std::string& name,
                                                 std::span<const std::string_view> normalizers) {
  const JsonReader reader{name};
  json::parser parser;
  CAIRN_ASSIGN_OR_RETURN(const json::element document, reader.Parse(parser, content));
  json::object object;
  if (document.get(object)) return reader.Bad("not a JSON object");
  TokenizerFile file;
  json::element member;
  if (!object.at_key("normalizer").get(member)) {
    CAIRN_RETURN_IF_ERROR(ReadNormalizer(member, name, normalizers, file));
  }
  if (object.at_key("model").get(member)) return Bad(name, "has no model");
  CAIRN_RETURN_IF_ERROR(ReadModel(member, name, file));
  if (object.at_key("pre_tokenizer").get(member) || member.is_null()) {
    return Unsupported(name, "a tokenizer without a pre-tokenizer");
  }
  CAIRN_RETURN_IF_ERROR(ReadPretokenizer(member, name, file));
  if (!object.at_key("added_tokens").get(member)) {
    CAIRN_ASSIGN_OR_RETURN(file.added, reader.Added(member, file.vocab));
  }
  return file;
}

absl::StatusOr<std::vector<std::pair<std::string, uint32_t>>> ParseVocabJson(const std::string& content,
                                                                             const std::string& name) {
  const JsonReader reader{name};
  json::parser parser;
  CAIRN_ASSIGN_OR_RETURN(const json::element document, reader.Parse(parser, content));
  return reader.Vocab(document);
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParseMergesTxt(std::string_view content,
                                                                                const std::string& name) {
  const JsonReader reader{name};
  std::vector<std::pair<std::string, std::string>> merges;
  size_t number = 0;
  for (size_t from = 0; from < content.size();) {
    const size_t newline = std::min(content.find('\n', from), content.size());
    std::string_view line = content.substr(from, newline - from);
    from = newline + 1;
    ++number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || line.substr(0, 8) == "#version") continue;
    CAIRN_ASSIGN_OR_RETURN(auto parts, reader.SplitMerge(line, absl::StrCat("line ", number)));
    merges.push_back(std::move(parts));
  }
  return merges;
}

absl::StatusOr<std::vector<std::pair<std::string, uint32_t>>> ParseTiktoken(std::string_view content,
                                                                            const std::string& name) {
  std::vector<std::pair<std::string, uint32_t>> ranks;
  size_t number = 0;
  for (size_t from = 0; from < content.size();) {
    const size_t newline = std::min(content.find('\n', from), content.size());
    std::string_view line = content.substr(from, newline - from);
    from = newline + 1;
    ++number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t blank = line.find(' ');
    const std::string_view digits = blank == std::string_view::npos ? "" : line.substr(blank + 1);
    uint32_t rank = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    std::string bytes;
    if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || rank > kMaxTokenId ||
        !absl::Base64Unescape(absl::string_view(line.data(), blank), &bytes) || bytes.empty()) {
      return Bad(name, absl::StrCat("line ", number, " is not a token in base64, a blank and a rank"));
    }
    if (bytes.size() > kMaxTokenBytes) {
      return Bad(name, absl::StrCat("line ", number, " has a token of ", bytes.size(), " bytes; at most ",
                                    kMaxTokenBytes, " are taken"));
    }
    ranks.emplace_back(std::move(bytes), rank);
  }
  if (ranks.empty()) return Bad(name, "holds no tokens");
  return ranks;
}

absl::StatusOr<std::vector<std::pair<std::string, uint32_t>>> ParseTiktokenJson(const std::string& content,
                                                                                const std::string& name) {
  const JsonReader reader{name};
  json::parser parser;
  CAIRN_ASSIGN_OR_RETURN(const json::element document, reader.Parse(parser, content));
  json::array entries;
  if (document.get(entries)) return reader.Bad("not a JSON list");
  std::vector<std::pair<std::string, uint32_t>> ranks;
  for (const json::element entry : entries) {
    json::object object;
    uint64_t rank;
    std::string_view base64;
    std::string bytes;
    if (entry.get(object) || object.at_key("rank").get(rank) || rank != ranks.size() || rank > kMaxTokenId ||
        object.at_key("token_bytes").get(base64) ||
        !absl::Base64Unescape(absl::string_view(base64.data(), base64.size()), &bytes) || bytes.empty() ||
        bytes.size() > kMaxTokenBytes) {
      return reader.Bad(absl::StrCat("entry ", ranks.size(), " is not {\"rank\": ", ranks.size(),
                                     ", \"token_bytes\": base64 of 1 to ", kMaxTokenBytes, " bytes}"));
    }
    ranks.emplace_back(std::move(bytes), static_cast<uint32_t>(rank));
  }
  return ranks;
}

}  // namespace cairn::corpus
