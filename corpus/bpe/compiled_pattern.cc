#include "corpus/bpe/compiled_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "corpus/bpe/pattern_dialect.h"

namespace cairn::corpus {
namespace {

// This is enough for any pre-token of a sane expression, and a runaway expression stops within about a second.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 256 * 1024;
constexpr size_t kMaxPatternBytes = 64 * 1024;

std::string ErrorText(int code) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(code, buffer, sizeof(buffer)) < 0) return absl::StrCat("PCRE2 error ", code);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const CompiledPattern>> CompiledPattern::Compile(const std::string& pattern) {
  if (pattern.empty()) return MakeError(Reason::kBadPattern, "the regular expression is empty");
  if (pattern.size() > kMaxPatternBytes) {
    return MakeError(Reason::kBadPattern, absl::StrCat("the regular expression has ", pattern.size(),
                                                       " bytes; at most ", kMaxPatternBytes, " are taken"));
  }
  const std::string translated = ToPcre2(pattern);
  pcre2_compile_context* const context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (code == nullptr) {
    return MakeError(Reason::kBadPattern,
                     absl::StrCat("the regular expression cannot be compiled: ", ErrorText(error), " at byte ", offset,
                                  translated == pattern ? "" : absl::StrCat(" of ", translated)),
                     {{"pattern", pattern}});
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // if this fails, PCRE2 interprets the expression
  return std::shared_ptr<const CompiledPattern>(new CompiledPattern(code, pattern));
}

CompiledPattern::~CompiledPattern() { pcre2_code_free(static_cast<pcre2_code*>(code_)); }

PatternMatcher::PatternMatcher(const CompiledPattern& pattern) : pattern_(pattern) {
  match_data_ = pcre2_match_data_create_from_pattern(static_cast<const pcre2_code*>(pattern.code_), nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(context, kMatchLimit);
  pcre2_set_heap_limit(context, kHeapLimitKib);
  match_context_ = context;
}

PatternMatcher::~PatternMatcher() {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(match_data_));
  pcre2_match_context_free(static_cast<pcre2_match_context*>(match_context_));
}

absl::StatusOr<PatternMatcher::Match> PatternMatcher::Find(std::string_view text, size_t from) {
  auto* data = static_cast<pcre2_match_data*>(match_data_);
  const auto* code = static_cast<const pcre2_code*>(pattern_.code_);
  const auto match = [&](uint32_t options) {
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, PCRE2_NO_UTF_CHECK | options,
                       data, static_cast<pcre2_match_context*>(match_context_));
  };
  int result = match(0);
  // Compiled code has a small machine stack. The interpreter takes its memory from the heap, up to the limit.
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(PCRE2_NO_JIT);
  if (result == PCRE2_ERROR_NOMATCH) return Match{};
  if (result < 0) {
    return MakeError(Reason::kBadPattern,
                     absl::StrCat("the regular expression failed at byte ", from, " of a text of ", text.size(),
                                  " bytes: ", ErrorText(result)),
                     {{"pattern", pattern_.pattern_}});
  }
  const PCRE2_SIZE* ovector = pcre2_get_ovector_pointer(data);
  // \K can put the reported start behind the match's end or before `from`.
  return Match{std::max<size_t>(ovector[0], from), std::max<size_t>(ovector[1], from), true};
}

}  // namespace cairn::corpus
