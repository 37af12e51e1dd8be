// Properties of characters as the regular expressions of nltk's Punkt ask for them.
#ifndef CAIRN_CORPUS_PUNKT_PUNKT_CHARS_H_
#define CAIRN_CORPUS_PUNKT_PUNKT_CHARS_H_

#include <string>
#include <string_view>

namespace cairn::corpus {

bool IsPythonSpace(char32_t c);   // \s, str.isspace()
bool IsPythonDigit(char32_t c);   // \d
bool IsPythonLetter(char32_t c);  // [^\W\d]: a letter, an underscore, a numeral that is no decimal digit
bool IsPythonUpper(char32_t c);   // str.isupper() of one character
bool IsPythonLower(char32_t c);   // str.islower() of one character
// str.lower() of valid UTF-8.
std::string PythonLower(std::string_view text);
// str.rstrip() of valid UTF-8.
std::string_view PythonRstrip(std::string_view text);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PUNKT_PUNKT_CHARS_H_
