// Rewrites regular expressions as Hugging Face tokenizers read them into PCRE2's syntax.
#ifndef CAIRN_CORPUS_BPE_PATTERN_DIALECT_H_
#define CAIRN_CORPUS_BPE_PATTERN_DIALECT_H_

#include <string>
#include <string_view>

namespace cairn::corpus {

// Returns the expression that matches with PCRE2 (UTF, UCP, MULTILINE) what `pattern` matches with Oniguruma, which
// Hugging Face tokenizers uses (Oniguruma's doc/RE and doc/SYNTAX.md; the members of \w and \s were observed in
// tokenizers itself). Oniguruma and PCRE2 differ here:
//   \w \W \b \B   word characters are alphabetics, marks, decimal digits, connectors and six of Latin-1's fractions and
//                 superscripts; PCRE2 takes letters and numbers
//   \s \S         White_Space; PCRE2 adds U+180E
//   \h \H         hexadecimal digits; PCRE2: horizontal space
//   \p{Han}       the characters of the script; PCRE2: also those that it shares with others
//   [:alpha:] ... by the properties of Unicode; [:punct:] has the symbols too
//   [a[bc]] &&    classes nest and intersect; PCRE2: literal characters
//   (?m)          the dot matches newlines too: PCRE2's (?s)
//   x{1,3}+       repeated; PCRE2: possessive
// Anything else is copied, and PCRE2 reports what is wrong with it.
std::string ToPcre2(std::string_view pattern);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_PATTERN_DIALECT_H_
