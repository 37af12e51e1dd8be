// Says what BERT's tokenizers make of each Unicode scalar value, in the two dialects with which corpora were made.
//
// The tables were observed and not derived from a Unicode version: see generate_tables.py. Hangul syllables decompose
// by the arithmetic of the Unicode Standard, section 3.12.
#ifndef CAIRN_CORPUS_WORDPIECE_BERT_CHARS_H_
#define CAIRN_CORPUS_WORDPIECE_BERT_CHARS_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cairn::corpus {

enum class BertDialect {
  kFast,    // Hugging Face's BertNormalizer and BertPreTokenizer: Megatron-LM today
  kLegacy,  // Google's original: Megatron-LM before 2026
};

enum class CharClass : uint8_t {
  kWord,   // part of a word
  kDrop,   // vanishes; its neighbours join
  kSpace,  // ends a word
  kCjk,    // a word of its own, with blanks around it
  kPunct,  // a word of its own
};

// The characters of one dialect, with or without lower-casing (which also strips accents). Immutable; thread-safe.
class BertChars {
 public:
  static const BertChars& Get(BertDialect dialect, bool lower_case);

  // Returns the class of a character as it stands in the text. `scalar` < 0x110000.
  CharClass ClassOf(char32_t scalar) const { return static_cast<CharClass>(flags_[scalar] & kClassMask); }
  // Returns whether Replace() changes the character.
  bool IsReplaced(char32_t scalar) const { return (flags_[scalar] & kReplaced) != 0; }
  // Appends to `out` what lower-casing and stripping leave of the character, which may be nothing.
  void Replace(char32_t scalar, std::u32string& out) const;
  // Returns true for a replaced character that left nothing but still separates what canonical reordering may swap.
  bool IsStrippedStarter(char32_t scalar) const { return (flags_[scalar] & kStrippedStarter) != 0; }
  // Returns the canonical combining class of a character that Replace() left.
  uint8_t CombiningClassOf(char32_t scalar) const;
  // Returns the class of a character after Replace(). Ideographs are kWord here, because blanks were put around them
  // before.
  CharClass FinalClassOf(char32_t scalar) const {
    const CharClass c = ClassOf(scalar);
    return c == CharClass::kPunct || c == CharClass::kSpace ? c : CharClass::kWord;
  }

  // These properties decide about the final sigma of str.lower().
  static bool IsCased(char32_t scalar);
  static bool IsCaseIgnorable(char32_t scalar);

 private:
  BertChars(BertDialect dialect, bool lower_case);

  static constexpr uint8_t kClassMask = 0x07, kReplaced = 0x08, kCombines = 0x10, kStrippedStarter = 0x20;

  std::vector<uint8_t> flags_;  // one entry per scalar value
  std::unordered_map<char32_t, char32_t> single_;
  std::unordered_map<char32_t, std::u32string> several_;
  std::unordered_map<char32_t, uint8_t> combining_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_WORDPIECE_BERT_CHARS_H_
