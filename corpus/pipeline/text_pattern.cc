#include "corpus/pipeline/text_pattern.h"

#include <memory>
#include <span>
#include <utility>

#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/compiled_pattern.h"
#include "corpus/bpe/pretokenizer.h"
#include "corpus/unicode/utf8.h"

namespace cairn::corpus {
namespace {

// A published expression matches everywhere.
FindMatches MatchByScanner(Pretokenizer pretokenizer) {
  return [pretokenizer = std::move(pretokenizer)](std::string_view text, std::vector<Match>& matches) -> absl::Status {
    Splitter splitter(pretokenizer);
    uint32_t ends[256];
    for (size_t from = 0; from < text.size();) {
      CAIRN_ASSIGN_OR_RETURN(const size_t count, splitter.Split(text, from, ends));
      for (const uint32_t end : std::span(ends).first(count)) {
        matches.push_back({from, end, true});
        from = end;
      }
    }
    return absl::OkStatus();
  };
}

}  // namespace

FindMatches MatchLiteral(std::string literal) {
  return [literal = std::move(literal)](std::string_view text, std::vector<Match>& matches) {
    size_t done = 0;
    for (size_t at = text.find(literal); at != std::string_view::npos; at = text.find(literal, done)) {
      if (done < at) matches.push_back({done, at, false});
      done = at + literal.size();
      matches.push_back({at, done, true});
    }
    if (done < text.size()) matches.push_back({done, text.size(), false});
    return absl::OkStatus();
  };
}

absl::StatusOr<FindMatches> MatchExpression(const std::string& expression) {
  CAIRN_ASSIGN_OR_RETURN(Pretokenizer pretokenizer, Pretokenizer::FromPattern(expression));
  if (pretokenizer.has_safe_cuts()) return MatchByScanner(std::move(pretokenizer));
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<const CompiledPattern> pattern, CompiledPattern::Compile(expression));
  return FindMatches([pattern](std::string_view text, std::vector<Match>& matches) -> absl::Status {
    PatternMatcher matcher(*pattern);
    size_t done = 0;
    bool any = false;
    for (size_t search = 0; search <= text.size();) {
      CAIRN_ASSIGN_OR_RETURN(const PatternMatcher::Match match, matcher.Find(text, search));
      if (!match.found) break;
      if (match.begin == match.end && any && match.end == done) {
        // An empty match right behind the match before it does not count.
        if (search == text.size()) break;
        NextScalar(text, search);
        continue;
      }
      if (done < match.begin) matches.push_back({done, match.begin, false});
      matches.push_back({match.begin, match.end, true});
      search = done = match.end;
      any = true;
    }
    if (done < text.size()) matches.push_back({done, text.size(), false});
    return absl::OkStatus();
  });
}

absl::StatusOr<FindMatches> ReadPattern(const JsonReader& reader, simdjson::dom::object pattern) {
  simdjson::dom::element member;
  const bool is_expression = !pattern.at_key("Regex").get(member);
  if (!is_expression && pattern.at_key("String").get(member))
    return reader.Bad("a pattern is neither String nor Regex");
  CAIRN_ASSIGN_OR_RETURN(std::string text, reader.String(pattern, is_expression ? "Regex" : "String"));
  if (text.empty()) return reader.Unsupported("an empty pattern");
  if (is_expression) {
    absl::StatusOr<FindMatches> find = MatchExpression(text);
    if (!find.ok()) return Annotate(find.status(), reader.name, {{"file", reader.name}});
    return find;
  }
  return MatchLiteral(std::move(text));
}

}  // namespace cairn::corpus
