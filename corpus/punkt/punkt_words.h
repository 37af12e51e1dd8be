// Cuts text into Punkt's words: what stands between blanks, without punctuation other than periods.
#ifndef CAIRN_CORPUS_PUNKT_PUNKT_WORDS_H_
#define CAIRN_CORPUS_PUNKT_PUNKT_WORDS_H_

#include <string>
#include <string_view>
#include <vector>

namespace cairn::corpus {

// Returns true for a character that cannot stand within a word: quotation marks, brackets and ) ; : * @ ? !
bool IsNonWord(char32_t c);

// Appends the words of `text` (valid UTF-8) in order, as parts of it, as the word tokenizer of nltk 3.10's
// PunktLanguageVars finds them line by line.
void SplitPunktWords(std::string_view text, std::vector<std::string_view>& words);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PUNKT_PUNKT_WORDS_H_
