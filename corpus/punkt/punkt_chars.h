// Tells the properties of characters that nltk's Punkt asks for, by methods of Python's str and by regular expressions.
// nltk runs these on the `regex` package, whose \s and \w follow Unicode Technical Standard 18, unlike those of `re`.
#ifndef CAIRN_CORPUS_PUNKT_PUNKT_CHARS_H_
#define CAIRN_CORPUS_PUNKT_PUNKT_CHARS_H_

#include <string>
#include <string_view>

namespace cairn::corpus {

bool IsRegexSpace(char32_t c);   // \s: the property White_Space
bool IsRegexDigit(char32_t c);   // \d: a decimal digit
bool IsRegexLetter(char32_t c);  // [^\W\d]: alphabetic, a mark, a joiner, or connecting punctuation
bool IsPythonSpace(char32_t c);  // str.isspace(): White_Space and the four information separators
bool IsPythonUpper(char32_t c);  // str.isupper() of one character
bool IsPythonLower(char32_t c);  // str.islower() of one character
// Does what str.lower() does, for valid UTF-8.
std::string PythonLower(std::string_view text);
// Does what str.rstrip() does, for valid UTF-8. The result is empty where that of str.strip() is.
std::string_view PythonRstrip(std::string_view text);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PUNKT_PUNKT_CHARS_H_
