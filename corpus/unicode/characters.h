// Says what Hugging Face tokenizers takes each Unicode scalar value for.
//
// The tables were observed and not derived from a Unicode version, because its parts use different ones: see
// generate_character_tables.py.
#ifndef CAIRN_CORPUS_UNICODE_CHARACTERS_H_
#define CAIRN_CORPUS_UNICODE_CHARACTERS_H_

#include <cstdint>
#include <string>

namespace cairn::corpus {

enum CharacterFlag : uint8_t {
  kNumeric = 1,      // what the pre-tokenizer Digits sets apart
  kPunctuation = 2,  // what Punctuation and BertPreTokenizer set apart
  kWordPart = 4,     // \w of the pre-tokenizer Whitespace
  kCombining = 8,    // what the normalizer StripAccents drops
  kNonspacing = 16,  // what BertNormalizer drops with strip_accents
  kWhiteSpace = 32,  // White_Space
  kDropped = 64,     // what BertNormalizer drops with clean_text
  kIdeograph = 128,  // what BertNormalizer puts blanks around with handle_chinese_chars
};

// Returns the sum of the flags of a character. `scalar` < 0x110000.
uint8_t FlagsOf(char32_t scalar);

// Returns the number of the script that the pre-tokenizer UnicodeScripts sees; 0 for a blank, which joins any other.
uint8_t ScriptOf(char32_t scalar);

// Appends the lower-case form of a character in UTF-8.
void AppendLower(char32_t scalar, std::string& out);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_UNICODE_CHARACTERS_H_
