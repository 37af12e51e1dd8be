#include "corpus/pipeline/normalizer.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "corpus/bpe/byte_level.h"
#include "corpus/pipeline/normal_form.h"
#include "corpus/pipeline/precompiled.h"
#include "corpus/pipeline/text_pattern.h"
#include "corpus/unicode/ascii.h"
#include "corpus/unicode/characters.h"
#include "corpus/unicode/utf8.h"

namespace cairn::corpus {
namespace {

namespace json = simdjson::dom;

constexpr int kMaxDepth = 16;  // of Sequences in Sequences

// Calls map(scalar, text) for each character, which appends to `text` what becomes of it.
template <typename Map>
void MapCharacters(Pieces& pieces, Map&& map) {
  Rewrite rewrite(pieces);
  for (size_t at = 0, end = 0; at < pieces.text.size(); at = end) {
    const char32_t scalar = NextScalar(pieces.text, end);
    const size_t size = rewrite.size();
    map(scalar, rewrite.text());
    rewrite.Appended(size, at);
  }
  rewrite.Finish(pieces);
}

template <typename Map>
Step MapStep(Map map) {
  return [map](Pieces& pieces) {
    MapCharacters(pieces, map);
    return absl::OkStatus();
  };
}

Step DropStep(uint8_t flag) {
  return MapStep([flag](char32_t scalar, std::string& text) {
    if (!(FlagsOf(scalar) & flag)) AppendUtf8(scalar, text);
  });
}

Step FormStep(NormalForm form) {
  return [form](Pieces& pieces) {
    if (IsSurelyNormal(form, pieces.text)) return absl::OkStatus();
    std::string first = pieces.text.substr(0, pieces.from_first);
    Normalize(form, first);
    Normalize(form, pieces.text);
    pieces.from_first = std::min(first.size(), pieces.text.size());
    return absl::OkStatus();
  };
}

Step LowerStep() {
  return [](Pieces& pieces) {
    if (IsAscii(pieces.text)) {
      absl::AsciiStrToLower(&pieces.text);
    } else {
      MapCharacters(pieces, AppendLower);
    }
    return absl::OkStatus();
  };
}

Step ReplaceStep(FindMatches find, std::string content) {
  return [find = std::move(find), content = std::move(content)](Pieces& pieces) -> absl::Status {
    std::vector<Match> matches;
    if (pieces.text.empty()) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(find(pieces.text, matches));
    if (std::none_of(matches.begin(), matches.end(), [](const Match& match) { return match.found; })) {
      return absl::OkStatus();
    }
    Rewrite rewrite(pieces);
    for (const Match& match : matches) {
      if (rewrite.size() > pieces.limit) break;
      if (match.found) {
        rewrite.Put(content, match.end == 0 ? 0 : match.end - 1);
      } else {
        rewrite.Copy(match.begin, match.end);
      }
    }
    rewrite.Finish(pieces);
    return absl::OkStatus();
  };
}

Step ReplaceLiteralStep(std::string literal, std::string content) {
  return [literal = std::move(literal), content = std::move(content)](Pieces& pieces) {
    const std::string& text = pieces.text;
    size_t at = text.find(literal);
    if (at == std::string::npos) return absl::OkStatus();
    Rewrite rewrite(pieces);
    size_t done = 0;
    for (; at != std::string::npos && rewrite.size() <= pieces.limit; at = text.find(literal, done)) {
      rewrite.Copy(done, at);
      done = at + literal.size();
      rewrite.Put(content, done - 1);
    }
    rewrite.Copy(done, text.size());
    rewrite.Finish(pieces);
    return absl::OkStatus();
  };
}

Step PrependStep(std::string text) {
  return [text = std::move(text)](Pieces& pieces) {
    if (pieces.text.empty()) return absl::OkStatus();
    pieces.text.insert(0, text);
    if (pieces.from_first > 0) pieces.from_first += text.size();
    return absl::OkStatus();
  };
}

Step StripStep(bool left, bool right) {
  return [left, right](Pieces& pieces) {
    const std::string_view text = pieces.text;
    size_t begin = 0, end = text.size();
    for (size_t at = 0; left && at < text.size(); begin = at) {
      if (!(FlagsOf(NextScalar(text, at)) & kWhiteSpace)) break;
    }
    while (right && end > begin) {
      size_t at = end - 1;
      while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
      const size_t start = at;
      if (!(FlagsOf(NextScalar(text, at)) & kWhiteSpace)) break;
      end = start;
    }
    Rewrite rewrite(pieces);
    rewrite.Copy(begin, end);
    rewrite.Finish(pieces);
    return absl::OkStatus();
  };
}

Step PrecompiledStep(CharacterMap map) {
  auto shared = std::make_shared<const CharacterMap>(std::move(map));
  return [shared](Pieces& pieces) {
    pieces.text = ReplaceGraphemes(*shared, pieces.text, pieces.limit);
    size_t first = 0;
    if (pieces.from_first > 0 && !pieces.text.empty()) NextScalar(pieces.text, first);
    pieces.from_first = first;
    return absl::OkStatus();
  };
}

// tokenizers' copy of the rules of Google's NMT.
Step NmtStep() {
  return MapStep([](char32_t c, std::string& text) {
    if ((c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) return;
    const bool blank = c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                       c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
    AppendUtf8(blank ? U' ' : c, text);
  });
}

absl::Status ReadBert(const JsonReader& reader, json::object object, std::vector<Step>& steps) {
  CAIRN_ASSIGN_OR_RETURN(const bool clean, reader.Bool(object, "clean_text", true));
  CAIRN_ASSIGN_OR_RETURN(const bool ideographs, reader.Bool(object, "handle_chinese_chars", true));
  CAIRN_ASSIGN_OR_RETURN(const bool lowercase, reader.Bool(object, "lowercase", true));
  CAIRN_ASSIGN_OR_RETURN(const bool strip, reader.Bool(object, "strip_accents", lowercase));
  if (clean) {
    steps.push_back(MapStep([](char32_t scalar, std::string& text) {
      const uint8_t flags = FlagsOf(scalar);
      if (!(flags & kDropped)) AppendUtf8(flags & kWhiteSpace ? U' ' : scalar, text);
    }));
  }
  if (ideographs) {
    steps.push_back(MapStep([](char32_t scalar, std::string& text) {
      const bool apart = FlagsOf(scalar) & kIdeograph;
      if (apart) text.push_back(' ');
      AppendUtf8(scalar, text);
      if (apart) text.push_back(' ');
    }));
  }
  if (strip) {
    steps.push_back(FormStep(NormalForm::kNfd));
    steps.push_back(DropStep(kNonspacing));
  }
  if (lowercase) steps.push_back(LowerStep());
  return absl::OkStatus();
}

absl::Status ReadReplace(const JsonReader& reader, json::object object, std::vector<Step>& steps) {
  CAIRN_ASSIGN_OR_RETURN(std::string content, reader.String(object, "content"));
  json::object pattern;
  if (object.at_key("pattern").get(pattern)) return reader.Bad("a Replace has no pattern");
  std::string_view literal;
  if (!pattern.at_key("String").get(literal) && !literal.empty()) {
    steps.push_back(ReplaceLiteralStep(std::string(literal), std::move(content)));
    return absl::OkStatus();
  }
  CAIRN_ASSIGN_OR_RETURN(FindMatches find, ReadPattern(reader, pattern));
  steps.push_back(ReplaceStep(std::move(find), std::move(content)));
  return absl::OkStatus();
}

absl::Status ReadPrecompiled(const JsonReader& reader, json::object object, std::vector<Step>& steps) {
  CAIRN_ASSIGN_OR_RETURN(const std::string base64, reader.String(object, "precompiled_charsmap"));
  std::string bytes;
  if (!absl::Base64Unescape(base64, &bytes)) return reader.Bad("precompiled_charsmap is not base64");
  absl::StatusOr<CharacterMap> map = CharacterMap::Parse(bytes);
  if (!map.ok()) return reader.Bad(std::string(map.status().message()));
  steps.push_back(PrecompiledStep(*std::move(map)));
  return absl::OkStatus();
}

absl::Status ReadOne(const JsonReader& reader, json::element value, int depth, std::vector<Step>& steps) {
  if (value.is_null()) return absl::OkStatus();
  json::object object;
  if (value.get(object)) return reader.Bad("a normalizer is no object");
  CAIRN_ASSIGN_OR_RETURN(const std::string type, reader.String(object, "type"));
  if (type == "Sequence") {
    json::array parts;
    if (object.at_key("normalizers").get(parts)) return reader.Bad("a Sequence has no list of normalizers");
    if (depth == kMaxDepth) return reader.Unsupported(absl::StrCat("a normalizer nested deeper than ", kMaxDepth));
    for (const json::element part : parts) CAIRN_RETURN_IF_ERROR(ReadOne(reader, part, depth + 1, steps));
    return absl::OkStatus();
  }
  if (type == "BertNormalizer") return ReadBert(reader, object, steps);
  if (type == "Replace") return ReadReplace(reader, object, steps);
  if (type == "Precompiled") return ReadPrecompiled(reader, object, steps);
  if (type == "NFC") {
    steps.push_back(FormStep(NormalForm::kNfc));
  } else if (type == "NFD") {
    steps.push_back(FormStep(NormalForm::kNfd));
  } else if (type == "NFKC") {
    steps.push_back(FormStep(NormalForm::kNfkc));
  } else if (type == "NFKD") {
    steps.push_back(FormStep(NormalForm::kNfkd));
  } else if (type == "Lowercase") {
    steps.push_back(LowerStep());
  } else if (type == "StripAccents") {
    steps.push_back(DropStep(kCombining));
  } else if (type == "Strip") {
    CAIRN_ASSIGN_OR_RETURN(const bool left, reader.Bool(object, "strip_left", false));
    CAIRN_ASSIGN_OR_RETURN(const bool right, reader.Bool(object, "strip_right", false));
    steps.push_back(StripStep(left, right));
  } else if (type == "Prepend") {
    CAIRN_ASSIGN_OR_RETURN(std::string text, reader.String(object, "prepend"));
    steps.push_back(PrependStep(std::move(text)));
  } else if (type == "ByteLevel") {
    steps.push_back(MapStep([](char32_t scalar, std::string& text) {
      std::string bytes;
      AppendUtf8(scalar, bytes);
      text += ToByteLevel(bytes);
    }));
  } else if (type == "Nmt") {
    steps.push_back(NmtStep());
  } else {
    return reader.Unsupported(absl::StrCat("the normalizer ", type));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadNormalizer(const JsonReader& reader, json::element value, std::vector<Step>& steps) {
  return ReadOne(reader, value, 0, steps);
}

}  // namespace cairn::corpus
