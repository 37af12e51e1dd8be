// Finds graphemes, which are what people take for one character, as Hugging Face tokenizers does.
//
// The rules are those of Unicode Standard Annex 29 for extended grapheme clusters. What each character is was observed
// (generate_grapheme_table.py), so the result does not depend on the Unicode version of a library. Two regional
// indicators, which are one flag, count as two graphemes: tokenizers replaces them by characters in any case.
#ifndef CAIRN_CORPUS_UNICODE_GRAPHEMES_H_
#define CAIRN_CORPUS_UNICODE_GRAPHEMES_H_

#include <cstddef>
#include <string_view>

namespace cairn::corpus {

// Returns the end of the grapheme that begins at text[at], where at < text.size(). The text must be valid UTF-8.
size_t GraphemeEnd(std::string_view text, size_t at);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_UNICODE_GRAPHEMES_H_
