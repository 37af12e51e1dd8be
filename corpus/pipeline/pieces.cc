#include "corpus/pipeline/pieces.h"

#include <algorithm>
#include <utility>

#include "common/status/status.h"
#include "corpus/unicode/utf8.h"

namespace cairn::corpus {

void Rewrite::Copy(size_t begin, size_t end) {
  text_.append(before_.text, begin, end - begin);
  if (!leading_) return;
  const size_t first = std::clamp(before_.from_first, begin, end) - begin;
  from_first_ += first;
  leading_ = first == end - begin;
}

void Rewrite::Put(std::string_view text, size_t source) {
  const size_t old_size = text_.size();
  text_.append(text);
  Appended(old_size, source);
}

void Rewrite::Appended(size_t old_size, size_t source) {
  if (!leading_ || text_.size() == old_size) return;
  if (source < before_.from_first) {
    from_first_ += text_.size() - old_size;
  } else {
    leading_ = false;
  }
}

void Rewrite::Finish(Pieces& pieces) {
  pieces.text = std::move(text_);
  pieces.from_first = from_first_;
}

namespace {

// Joins matches as the behavior wants. The parts are those of Hugging Face's NormalizedString::split.
void Join(SplitBehavior behavior, std::vector<Match>& matches) {
  size_t count = 0;
  bool previous = false;
  switch (behavior) {
    case SplitBehavior::kRemoved:
      std::erase_if(matches, [](const Match& match) { return match.found; });
      return;
    case SplitBehavior::kIsolated:
      return;
    case SplitBehavior::kContiguous:
      for (const Match& match : matches) {
        if (match.found == previous && count > 0) {
          matches[count - 1].end = match.end;
        } else {
          matches[count++] = match;
        }
        previous = match.found;
      }
      break;
    case SplitBehavior::kMergedWithPrevious:
      for (const Match& match : matches) {
        if (match.found && !previous && count > 0) {
          matches[count - 1].end = match.end;
        } else {
          matches[count++] = match;
        }
        previous = match.found;
      }
      break;
    case SplitBehavior::kMergedWithNext:
      // From the back, the next part is the previous one.
      std::reverse(matches.begin(), matches.end());
      for (const Match& match : matches) {
        if (match.found && !previous && count > 0) {
          matches[count - 1].begin = match.begin;
        } else {
          matches[count++] = match;
        }
        previous = match.found;
      }
      matches.resize(count);
      std::reverse(matches.begin(), matches.end());
      return;
  }
  matches.resize(count);
}

}  // namespace

absl::Status SplitSpans(Pieces& pieces, SplitBehavior behavior, const FindMatches& find) {
  std::vector<Span> spans;
  std::vector<Match> matches;
  for (const Span& span : pieces.spans) {
    matches.clear();
    CAIRN_RETURN_IF_ERROR(find(pieces.TextOf(span), matches));
    Join(behavior, matches);
    for (const Match& match : matches) {
      if (match.begin < match.end) spans.push_back({span.begin + match.begin, span.begin + match.end});
    }
  }
  pieces.spans = std::move(spans);
  return absl::OkStatus();
}

FindMatches MatchCharacters(std::function<bool(char32_t)> is_match) {
  return [is_match = std::move(is_match)](std::string_view text, std::vector<Match>& matches) {
    size_t done = 0;
    for (size_t at = 0, end = 0; at < text.size(); at = end) {
      if (!is_match(NextScalar(text, end))) continue;
      if (done < at) matches.push_back({done, at, false});
      matches.push_back({at, end, true});
      done = end;
    }
    if (done < text.size()) matches.push_back({done, text.size(), false});
    return absl::OkStatus();
  };
}

}  // namespace cairn::corpus
