// A text on its way through a tokenizer's normalizer and pre-tokenizer.
#ifndef CAIRN_CORPUS_PIPELINE_PIECES_H_
#define CAIRN_CORPUS_PIPELINE_PIECES_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace cairn::corpus {

struct Span {
  size_t begin, end;  // in bytes; begin < end
};

struct Pieces {
  std::string text;  // valid UTF-8
  // The text may not become larger, in bytes. A step that finds its result larger stops, and then the text is refused.
  size_t limit = 0;
  // So many bytes at the beginning of `text` stem from the first character of the whole input. Metaspace asks for that.
  size_t from_first = 0;
  std::vector<Span> spans;  // the pieces of `text`, ascending; a normalizer does not look at them

  std::string_view TextOf(const Span& span) const {
    return std::string_view(text).substr(span.begin, span.end - span.begin);
  }
};

// One step of a normalizer or pre-tokenizer. May be called by several threads at the same time. INVALID_ARGUMENT
// (BAD_PATTERN): a regular expression took more steps or memory than is reasonable.
using Step = std::function<absl::Status(Pieces&)>;

// Builds the text that a step makes of another, part by part, and counts for Pieces::from_first how many of its bytes
// stem from the first character of the input.
class Rewrite {
 public:
  // The bytes of `before` must stay unchanged until Finish().
  explicit Rewrite(const Pieces& before) : before_(before) { text_.reserve(before.text.size()); }

  // Takes over the bytes from `begin` to `end` of the text before.
  void Copy(size_t begin, size_t end);
  // Adds text that stands for the byte `source` of the text before.
  void Put(std::string_view text, size_t source);

  size_t size() const { return text_.size(); }
  // The text so far; a caller may append to it directly if it calls Appended() then.
  std::string& text() { return text_; }
  // Says that the text from `old_size` on was appended, and stands for the byte `source`.
  void Appended(size_t old_size, size_t source);

  // Moves the new text to `pieces`; the spans stay.
  void Finish(Pieces& pieces);

 private:
  const Pieces& before_;
  std::string text_;
  bool leading_ = true;  // all bytes so far stem from the first character
  size_t from_first_ = 0;
};

// What a pattern found: all of a text, as parts that match and parts that do not.
struct Match {
  size_t begin, end;
  bool found;
};

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Replaces each span by those that `find` and `behavior` make of it. find(text, matches) appends the matches of a text,
// which cover it. Empty spans are dropped.
using FindMatches = std::function<absl::Status(std::string_view text, std::vector<Match>& matches)>;
absl::Status SplitSpans(Pieces& pieces, SplitBehavior behavior, const FindMatches& find);

// Makes each character that `is_match` accepts a match.
FindMatches MatchCharacters(std::function<bool(char32_t)> is_match);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PIPELINE_PIECES_H_
