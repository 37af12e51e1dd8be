// Matches, by PCRE2, a regular expression that is none of the published ones.
#ifndef CAIRN_CORPUS_BPE_COMPILED_PATTERN_H_
#define CAIRN_CORPUS_BPE_COMPILED_PATTERN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cairn::corpus {

// The expression is read as Hugging Face tokenizers reads it (pattern_dialect.h), with PCRE2's own Unicode version, and
// compiled to machine code where PCRE2 can. Immutable; thread-safe.
class CompiledPattern {
 public:
  // INVALID_ARGUMENT (BAD_PATTERN): it is no regular expression; the message has the offset.
  static absl::StatusOr<std::shared_ptr<const CompiledPattern>> Compile(const std::string& pattern);
  ~CompiledPattern();
  CompiledPattern(const CompiledPattern&) = delete;
  CompiledPattern& operator=(const CompiledPattern&) = delete;

 private:
  friend class PatternMatcher;
  CompiledPattern(void* code, std::string pattern) : code_(code), pattern_(std::move(pattern)) {}

  void* code_;  // pcre2_code
  std::string pattern_;
};

// Matches for one thread. Not thread-safe; the pattern must outlive it.
class PatternMatcher {
 public:
  explicit PatternMatcher(const CompiledPattern& pattern);
  ~PatternMatcher();
  PatternMatcher(const PatternMatcher&) = delete;
  PatternMatcher& operator=(const PatternMatcher&) = delete;

  struct Match {
    size_t begin = 0;
    size_t end = 0;
    bool found = false;
  };
  // Returns the leftmost match that begins at or after `from` in `text`, which must be valid UTF-8. INVALID_ARGUMENT
  // (BAD_PATTERN): it took more steps or memory than is reasonable for any text.
  absl::StatusOr<Match> Find(std::string_view text, size_t from);

 private:
  const CompiledPattern& pattern_;
  void* match_data_;     // pcre2_match_data
  void* match_context_;  // pcre2_match_context
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_COMPILED_PATTERN_H_
