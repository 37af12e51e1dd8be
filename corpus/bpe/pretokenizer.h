// Cuts text into pre-tokens ("words"), the pieces inside which byte pairs may merge.
#ifndef CAIRN_CORPUS_BPE_PRETOKENIZER_H_
#define CAIRN_CORPUS_BPE_PRETOKENIZER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cairn::corpus {

class CompiledPattern;

// A rule that cuts text. Scanners written by hand do the published rules, and PCRE2 matches any other regular
// expression. A character is a code point of valid UTF-8; any other byte is a character without class. Immutable and
// cheap to copy; thread-safe.
class Pretokenizer {
 public:
  // Writes the ends of the pre-tokens of `text` from `from` on; returns how many (at most `ends.size()`).
  using Scanner = size_t (*)(std::string_view text, size_t from, std::span<uint32_t> ends);

  // `name` is "gpt2", "gpt4", "cl100k", "llama3", "qwen2", "o200k" or "whitespace". gpt4 is the expression that minbpe
  // and Llama 3 use; cl100k is tiktoken's, which also keeps trailing white space in one piece. INVALID_ARGUMENT
  // (BAD_PATTERN): there is no such rule.
  static absl::StatusOr<Pretokenizer> Named(std::string_view name);

  // Takes a regular expression; it recognises the published ones and scans them by hand. Text between two matches is a
  // pre-token too, as in Hugging Face's Split with "isolated". INVALID_ARGUMENT (BAD_PATTERN): the expression cannot be
  // compiled; the message has the position.
  static absl::StatusOr<Pretokenizer> FromPattern(const std::string& pattern);

  // Takes `text` as a name if it is one, else as a regular expression.
  static absl::StatusOr<Pretokenizer> NamedOrPattern(const std::string& text);

  const std::string& pattern() const { return pattern_; }
  bool is_gpt2() const;
  // Returns whether IsSafeCut() may be used to cut text into parts that are scanned on their own.
  bool has_safe_cuts() const { return scanner_ != nullptr; }

  // Returns whether a pre-token always ends at `position` (0 < position < text.size()), whatever comes before and
  // after, so that both sides can be scanned on their own. Allowed only if has_safe_cuts(). It looks only at the
  // characters beside the position; four bytes behind it must be there, unless the text ends before.
  bool IsSafeCut(std::string_view text, size_t position) const;
  // Returns the largest safe cut in (0, limit], or 0 if there is none.
  size_t LastSafeCut(std::string_view text, size_t limit) const;

 private:
  friend class Splitter;
  Pretokenizer(std::string pattern, Scanner scanner) : pattern_(std::move(pattern)), scanner_(scanner) {}

  std::string pattern_;
  Scanner scanner_;  // null: `compiled_` decides
  std::shared_ptr<const CompiledPattern> compiled_;
};

// The state of one thread that uses a pre-tokenizer. Not thread-safe; the pre-tokenizer must outlive it.
class Splitter {
 public:
  explicit Splitter(const Pretokenizer& pretokenizer);
  ~Splitter();
  Splitter(const Splitter&) = delete;
  Splitter& operator=(const Splitter&) = delete;

  // Writes the ends of the pre-tokens from `from` on into `ends` and returns how many there are. All of `text` is done
  // if the last end is text.size(). `text` must be below 4 GiB; `from` must be 0 or an end that was returned before for
  // the same text. INVALID_ARGUMENT (BAD_PATTERN): matching went beyond PCRE2's limits.
  absl::StatusOr<size_t> Split(std::string_view text, size_t from, std::span<uint32_t> ends);

 private:
  struct PatternState;

  absl::StatusOr<size_t> SplitByPattern(std::string_view text, size_t from, std::span<uint32_t> ends);

  const Pretokenizer& pretokenizer_;
  std::unique_ptr<PatternState> state_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_PRETOKENIZER_H_
