#include "corpus/pipeline/pre_tokenizer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "corpus/bpe/byte_level.h"
#include "corpus/bpe/scanners.h"
#include "corpus/pipeline/text_pattern.h"
#include "corpus/unicode/characters.h"
#include "corpus/unicode/utf8.h"

namespace cairn::corpus {
namespace {

namespace json = simdjson::dom;

constexpr int kMaxDepth = 16;  // of Sequences in Sequences

Step SplitStep(SplitBehavior behavior, FindMatches find) {
  return [behavior, find = std::move(find)](Pieces& pieces) { return SplitSpans(pieces, behavior, find); };
}

FindMatches MatchFlag(uint8_t flag) {
  return MatchCharacters([flag](char32_t scalar) { return (FlagsOf(scalar) & flag) != 0; });
}

FindMatches Inverted(FindMatches find) {
  return [find = std::move(find)](std::string_view text, std::vector<Match>& matches) -> absl::Status {
    CAIRN_RETURN_IF_ERROR(find(text, matches));
    for (Match& match : matches) match.found = !match.found;
    return absl::OkStatus();
  };
}

// Calls change(span, rewrite) for each span, which adds to the rewrite what becomes of it.
template <typename Change>
void ChangeSpans(Pieces& pieces, Change&& change) {
  Rewrite rewrite(pieces);
  std::vector<Span> spans;
  for (const Span& span : pieces.spans) {
    const size_t begin = rewrite.size();
    change(span, rewrite);
    if (rewrite.size() > begin) spans.push_back({begin, rewrite.size()});
  }
  rewrite.Finish(pieces);
  pieces.spans = std::move(spans);
}

// Matches what tokenizers' Whitespace drops: all but \w+ and [^\w\s]+.
absl::Status MatchBetweenWords(std::string_view text, std::vector<Match>& matches) {
  const auto kind_of = [](char32_t scalar) {
    const uint8_t flags = FlagsOf(scalar);
    return flags & kWordPart ? kWordPart : flags & kWhiteSpace ? kWhiteSpace : 0;
  };
  int last = -1;
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    const int kind = kind_of(NextScalar(text, end));
    if (kind == last) {
      matches.back().end = end;
    } else {
      matches.push_back({at, end, kind == kWhiteSpace});
    }
    last = kind;
  }
  return absl::OkStatus();
}

Step PrefixBlankStep() {
  return [](Pieces& pieces) {
    ChangeSpans(pieces, [&](const Span& span, Rewrite& rewrite) {
      if (pieces.text[span.begin] != ' ') rewrite.Put(" ", span.begin);
      rewrite.Copy(span.begin, span.end);
    });
    return absl::OkStatus();
  };
}

Step ByteLevelStep() {
  return [](Pieces& pieces) {
    ChangeSpans(pieces, [&](const Span& span, Rewrite& rewrite) {
      for (size_t at = span.begin, end = at; at < span.end; at = end) {
        NextScalar(pieces.text, end);
        rewrite.Put(ToByteLevel(pieces.TextOf({at, end})), at);
      }
    });
    return absl::OkStatus();
  };
}

enum class Prefix { kAlways, kFirst, kNever };

Step MetaspaceStep(std::string mark, Prefix prefix) {
  return [mark = std::move(mark), prefix](Pieces& pieces) {
    ChangeSpans(pieces, [&](const Span& span, Rewrite& rewrite) {
      const std::string_view text = pieces.TextOf(span);
      const bool wanted = prefix == Prefix::kAlways || (prefix == Prefix::kFirst && span.begin < pieces.from_first);
      if (wanted && text[0] != ' ' && text.substr(0, mark.size()) != mark) rewrite.Put(mark, span.begin);
      for (size_t done = span.begin; done < span.end;) {
        const size_t blank = std::min(pieces.text.find(' ', done), span.end);
        rewrite.Copy(done, blank);
        if (blank < span.end) rewrite.Put(mark, blank);
        done = blank + 1;
      }
    });
    return absl::OkStatus();
  };
}

// Text before the first character of any script is dropped, as in tokenizers.
Step ScriptsStep() {
  return [](Pieces& pieces) {
    std::vector<Span> spans;
    for (const Span& span : pieces.spans) {
      uint8_t last = 0;
      for (size_t at = span.begin, end = at; at < span.end; at = end) {
        const uint8_t script = ScriptOf(NextScalar(pieces.text, end));
        if (script == 0 || script == last) {
          if (last != 0) spans.back().end = end;
          continue;
        }
        spans.push_back({at, end});
        last = script;
      }
    }
    pieces.spans = std::move(spans);
    return absl::OkStatus();
  };
}

Step FixedLengthStep(uint64_t length) {
  return [length](Pieces& pieces) {
    std::vector<Span> spans;
    for (const Span& span : pieces.spans) {
      uint64_t count = length;
      for (size_t at = span.begin, end = at; at < span.end; at = end) {
        NextScalar(pieces.text, end);
        if (count++ == length) {
          spans.push_back({at, end});
          count = 1;
        }
        spans.back().end = end;
      }
    }
    pieces.spans = std::move(spans);
    return absl::OkStatus();
  };
}

class PreTokenizerReader {
 public:
  explicit PreTokenizerReader(const JsonReader& reader) : reader_(reader) {}

  absl::Status Read(json::element value, int depth) {
    if (value.is_null()) return absl::OkStatus();
    json::object object;
    if (value.get(object)) return reader_.Bad("a pre-tokenizer is no object");
    CAIRN_ASSIGN_OR_RETURN(const std::string type, reader_.String(object, "type"));
    if (type == "Sequence") {
      json::array parts;
      if (object.at_key("pretokenizers").get(parts)) return reader_.Bad("a Sequence has no list of pre-tokenizers");
      if (depth == kMaxDepth)
        return reader_.Unsupported(absl::StrCat("a pre-tokenizer nested deeper than ", kMaxDepth));
      for (const json::element part : parts) CAIRN_RETURN_IF_ERROR(Read(part, depth + 1));
      return absl::OkStatus();
    }
    result.ends_in_byte_level = false;
    if (type == "BertPreTokenizer") {
      Add(SplitStep(SplitBehavior::kRemoved, MatchFlag(kWhiteSpace)));
      Add(SplitStep(SplitBehavior::kIsolated, MatchFlag(kPunctuation)));
    } else if (type == "ByteLevel") {
      return ReadByteLevel(object);
    } else if (type == "CharDelimiterSplit" || type == "Delimiter") {
      CAIRN_ASSIGN_OR_RETURN(std::string delimiter, Character(object, "delimiter"));
      Add(SplitStep(SplitBehavior::kRemoved, MatchLiteral(std::move(delimiter))));
    } else if (type == "Digits") {
      CAIRN_ASSIGN_OR_RETURN(const bool each, reader_.Bool(object, "individual_digits", false));
      Add(SplitStep(each ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, MatchFlag(kNumeric)));
    } else if (type == "FixedLength") {
      uint64_t length = 5;
      json::element member;
      if (!object.at_key("length").get(member) && (member.get(length) || length == 0)) {
        return reader_.Bad("the length of FixedLength is no positive number");
      }
      Add(FixedLengthStep(length));
    } else if (type == "Metaspace") {
      return ReadMetaspace(object);
    } else if (type == "Punctuation") {
      CAIRN_ASSIGN_OR_RETURN(const SplitBehavior behavior, Behavior(object));
      Add(SplitStep(behavior, MatchFlag(kPunctuation)));
    } else if (type == "Split") {
      return ReadSplit(object);
    } else if (type == "UnicodeScripts") {
      Add(ScriptsStep());
    } else if (type == "Whitespace") {
      Add(SplitStep(SplitBehavior::kRemoved, MatchBetweenWords));
    } else if (type == "WhitespaceSplit") {
      Add(SplitStep(SplitBehavior::kRemoved, MatchFlag(kWhiteSpace)));
    } else {
      return reader_.Unsupported(absl::StrCat("the pre-tokenizer ", type));
    }
    return absl::OkStatus();
  }

  PreTokenizerSteps result;

 private:
  void Add(Step step) { result.steps.push_back(std::move(step)); }

  absl::StatusOr<std::string> Character(json::object object, std::string_view key) const {
    CAIRN_ASSIGN_OR_RETURN(std::string text, reader_.String(object, key));
    const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
    if (std::count_if(text.begin(), text.end(), begins) != 1)
      return reader_.Bad(absl::StrCat("'", std::string(key), "' is no character"));
    return text;
  }

  absl::StatusOr<SplitBehavior> Behavior(json::object object) const {
    CAIRN_ASSIGN_OR_RETURN(const std::string name, reader_.String(object, "behavior"));
    if (name.empty() || name == "Isolated") return SplitBehavior::kIsolated;
    if (name == "Removed") return SplitBehavior::kRemoved;
    if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
    if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
    if (name == "Contiguous") return SplitBehavior::kContiguous;
    return reader_.Unsupported(absl::StrCat("the split behavior ", name));
  }

  absl::Status ReadSplit(json::object object) {
    json::object pattern;
    if (object.at_key("pattern").get(pattern)) return reader_.Bad("a Split has no pattern");
    CAIRN_ASSIGN_OR_RETURN(FindMatches find, ReadPattern(reader_, pattern));
    CAIRN_ASSIGN_OR_RETURN(const SplitBehavior behavior, Behavior(object));
    CAIRN_ASSIGN_OR_RETURN(const bool invert, reader_.Bool(object, "invert", false));
    Add(SplitStep(behavior, invert ? Inverted(std::move(find)) : std::move(find)));
    return absl::OkStatus();
  }

  absl::Status ReadByteLevel(json::object object) {
    CAIRN_ASSIGN_OR_RETURN(const bool prefix, reader_.Bool(object, "add_prefix_space", true));
    CAIRN_ASSIGN_OR_RETURN(const bool use_regex, reader_.Bool(object, "use_regex", true));
    if (prefix) Add(PrefixBlankStep());
    if (use_regex) {
      CAIRN_ASSIGN_OR_RETURN(FindMatches find, MatchExpression(kGpt2Pattern));
      Add(SplitStep(SplitBehavior::kIsolated, std::move(find)));
    }
    Add(ByteLevelStep());
    result.ends_in_byte_level = true;
    return absl::OkStatus();
  }

  absl::Status ReadMetaspace(json::object object) {
    CAIRN_ASSIGN_OR_RETURN(const std::string mark, Character(object, "replacement"));
    CAIRN_ASSIGN_OR_RETURN(const std::string scheme, reader_.String(object, "prepend_scheme"));
    CAIRN_ASSIGN_OR_RETURN(const bool add_prefix, reader_.Bool(object, "add_prefix_space", true));
    CAIRN_ASSIGN_OR_RETURN(const bool split, reader_.Bool(object, "split", true));
    Prefix prefix = Prefix::kAlways;
    if (scheme == "first") {
      prefix = Prefix::kFirst;
    } else if (scheme == "never") {
      prefix = Prefix::kNever;
    } else if (!scheme.empty() && scheme != "always") {
      return reader_.Unsupported(absl::StrCat("the prepend_scheme ", scheme));
    }
    if (!add_prefix && prefix != Prefix::kNever) {
      return reader_.Bad("add_prefix_space of Metaspace contradicts its prepend_scheme");
    }
    Add(MetaspaceStep(mark, prefix));
    if (split) Add(SplitStep(SplitBehavior::kMergedWithNext, MatchLiteral(mark)));
    return absl::OkStatus();
  }

  const JsonReader& reader_;
};

}  // namespace

absl::StatusOr<PreTokenizerSteps> ReadPreTokenizer(const JsonReader& reader, json::element value) {
  PreTokenizerReader steps(reader);
  CAIRN_RETURN_IF_ERROR(steps.Read(value, 0));
  return std::move(steps.result);
}

}  // namespace cairn::corpus
