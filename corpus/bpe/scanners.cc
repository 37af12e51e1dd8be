#include "corpus/bpe/scanners.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <algorithm>
#include <cstring>

#include "corpus/bpe/ascii_masks.h"
#include "corpus/unicode/class_table.h"

namespace cairn::corpus {
namespace {

using Byte = const uint8_t*;

constexpr uint8_t kNotOther = kLetter | kNumber | kSpace;
constexpr uint8_t kCased = kUpper | kLower;

// Returns the class of the character at p, which is before `end`. Beyond ASCII, here and below, characters of two and
// three bytes are the common case.
inline uint8_t ClassAt(Byte p, Byte end) {
  const uint8_t fast = kByteClass[*p];
  if (fast != kNotAscii) return fast;
  if (end - p >= 3) {
    const uint32_t b0 = p[0], b1 = p[1], b2 = p[2];
    if (b0 >= 0xC2 && b0 < 0xE0 && IsUtf8Continuation(p[1])) return ClassOf((b0 & 0x1F) << 6 | (b1 & 0x3F));
    const char32_t code = (b0 & 0x0F) << 12 | (b1 & 0x3F) << 6 | (b2 & 0x3F);
    if (b0 >= 0xE0 && b0 < 0xF0 && IsUtf8Continuation(p[1]) && IsUtf8Continuation(p[2]) && code >= 0x800) {
      return ClassOf(code);  // surrogates have no class
    }
  }
  return DecodeCharacter(p, end).char_class;
}

// Returns the length of the character at p if it has three or four bytes, as emoji and their joiners have, and no bit
// of `mask`; else 0. Four bytes from p on must be readable.
template <uint8_t mask>
inline size_t LongOutside(Byte p) {
  const uint32_t b0 = p[0], b1 = p[1], b2 = p[2], b3 = p[3];
  if (b0 < 0xE0 || !IsUtf8Continuation(p[1]) || !IsUtf8Continuation(p[2])) return 0;
  if (b0 < 0xF0) {
    const char32_t code = (b0 & 0x0F) << 12 | (b1 & 0x3F) << 6 | (b2 & 0x3F);
    const bool valid = code >= 0x800 && (code < 0xD800 || code >= 0xE000);
    return valid && !(ClassOf(code) & mask) ? 3 : 0;
  }
  if (!IsUtf8Continuation(p[3])) return 0;
  const char32_t code = (b0 & 0x0F) << 18 | (b1 & 0x3F) << 12 | (b2 & 0x3F) << 6 | (b3 & 0x3F);
  return code >= 0x10000 && code <= 0x10FFFF && !(ClassOf(code) & mask) ? 4 : 0;
}

// Returns the end of the run of characters beyond ASCII, from p on, that have a bit of `mask`.
template <uint8_t mask>
inline Byte SkipBeyondAscii(Byte p, Byte end) {
  while (end - p >= 4 && *p >= 0xC2 && *p < 0xF0) {
    const uint32_t b0 = p[0], b1 = p[1], b2 = p[2];
    if (b0 < 0xE0) {
      if (!IsUtf8Continuation(p[1]) || !(ClassOf((b0 & 0x1F) << 6 | (b1 & 0x3F)) & mask)) return p;
      p += 2;
    } else {
      const char32_t code = (b0 & 0x0F) << 12 | (b1 & 0x3F) << 6 | (b2 & 0x3F);
      if (!IsUtf8Continuation(p[1]) || !IsUtf8Continuation(p[2]) || code < 0x800) return p;
      if (!(ClassOf(code) & mask)) return p;  // surrogates have no class
      p += 3;
    }
  }
  while (p < end && *p >= 0x80) {
    const Character character = DecodeCharacter(p, end);
    if (!(character.char_class & mask)) break;
    p += character.length;
  }
  return p;
}

// Returns the end of the run of ASCII letters from p on. It takes sixteen bytes at a time, because a processor cannot
// predict where a word ends.
inline Byte SkipAsciiLetters(Byte p, Byte end) {
#if defined(__SSE2__)
  while (end - p >= 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    // Letters of either case become the 26 smallest signed numbers.
    const __m128i lower = _mm_or_si128(bytes, _mm_set1_epi8(0x20));
    const __m128i shifted = _mm_add_epi8(lower, _mm_set1_epi8(static_cast<char>(0x80 - 'a')));
    const __m128i letters = _mm_cmplt_epi8(shifted, _mm_set1_epi8(static_cast<char>(0x80 + 26)));
    const auto others = ~static_cast<uint32_t>(_mm_movemask_epi8(letters)) & 0xFFFF;
    if (others != 0) return p + __builtin_ctz(others);
    p += 16;
  }
#elif defined(__aarch64__)
  while (end - p >= 16) {
    const uint8x16_t lower = vorrq_u8(vld1q_u8(p), vdupq_n_u8(0x20));
    const uint8x16_t other = vcgtq_u8(vsubq_u8(lower, vdupq_n_u8('a')), vdupq_n_u8(25));
    // Four bits for each byte.
    const uint64_t others = vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(other), 4)), 0);
    if (others != 0) return p + __builtin_ctzll(others) / 4;
    p += 16;
  }
#endif
  while (p < end && (kByteClass[*p] & kLetter) && *p < 0x80) ++p;
  return p;
}

// Returns the end of the longest run of characters, from p on, that have a bit of `mask`.
template <uint8_t mask>
inline Byte SkipClass(Byte p, Byte end) {
  while (p < end) {
    if (*p >= 0x80) {
      const Byte stop = SkipBeyondAscii<mask>(p, end);
      if (stop == p) return p;
      p = stop;
    } else if constexpr (mask == kLetter) {
      const Byte stop = SkipAsciiLetters(p, end);
      p = stop;
      if (p < end && *p < 0x80) return p;
    } else {
      if (!(kByteClass[*p] & mask)) return p;
      ++p;
    }
  }
  return p;
}

// Does the same for characters without any bit of `mask`.
template <uint8_t mask>
inline Byte SkipOutside(Byte p, Byte end) {
  while (p < end) {
    const uint8_t fast = kByteClass[*p];
    if (fast == kNotAscii) {
      if (const size_t length = end - p >= 4 ? LongOutside<mask>(p) : 0; length != 0) {
        p += length;
        continue;
      }
      const Character character = DecodeCharacter(p, end);
      if (character.char_class & mask) break;
      p += character.length;
    } else if (!(fast & mask)) {
      ++p;
    } else {
      break;
    }
  }
  return p;
}

// Skips up to `most` numbers.
inline Byte SkipNumbers(Byte p, Byte end, int most) {
  for (; most > 0 && p < end; --most) {
    const Character character = DecodeCharacter(p, end);
    if (!(character.char_class & kNumber)) break;
    p += character.length;
  }
  return p;
}

inline bool IsLineEnd(uint8_t byte) { return byte == '\r' || byte == '\n'; }

// Matches 's|'t|'re|'ve|'m|'ll|'d at p, which is at the apostrophe. Returns p if there is no match. With `fold` it
// matches as (?i:...) does, so U+017F is an s.
template <bool fold>
inline Byte SkipContraction(Byte p, Byte end) {
  const auto lower = [](uint8_t byte) -> uint8_t {
    return fold && byte >= 'A' && byte <= 'Z' ? static_cast<uint8_t>(byte | 0x20) : byte;
  };
  if (end - p < 2) return p;
  const uint8_t first = lower(p[1]);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return p + 2;
  if (end - p < 3) return p;
  if (fold && p[1] == 0xC5 && p[2] == 0xBF) return p + 3;
  const uint8_t second = lower(p[2]);
  if ((first == 'r' || first == 'v') && second == 'e') return p + 3;
  if (first == 'l' && second == 'l') return p + 3;
  return p;
}

// Matches \s+(?!\S)|\s+ at p, where white space ends at `stop` (> p): all of it at the end of the text, else all but
// its last character, unless that is the only one.
inline Byte SpaceEnd(Byte p, Byte stop, Byte end) {
  if (stop == end) return stop;
  Byte last = stop - 1;
  while (IsUtf8Continuation(*last)) --last;
  return last > p ? last : stop;
}

// Matches \s*[\r\n]+|\s+(?!\S)|\s+ at p, which is at white space; with `whole_tail`, \s++$ comes first.
template <bool whole_tail>
inline Byte SpaceOrLines(Byte p, Byte end) {
  const Byte stop = SkipClass<kSpace>(p, end);
  if (whole_tail && stop == end) return stop;
  for (Byte q = stop; q > p; --q) {
    if (IsLineEnd(q[-1])) return q;
  }
  return SpaceEnd(p, stop, end);
}

struct Gpt2 {
  static Byte Next(Byte p, Byte end) {
    if (*p == '\'') {
      if (const Byte q = SkipContraction<false>(p, end); q != p) return q;
    }
    // The optional blank belongs to what follows it, unless white space follows.
    const Byte q = *p == ' ' && p + 1 < end ? p + 1 : p;
    const uint8_t c = ClassAt(q, end);
    if (c & kLetter) return SkipClass<kLetter>(q, end);
    if (c & kNumber) return SkipClass<kNumber>(q, end);
    if (!(c & kSpace)) return SkipOutside<kNotOther>(q, end);
    return SpaceEnd(p, SkipClass<kSpace>(p, end), end);
  }
};

// Scans gpt4, llama3, cl100k and qwen2, which differ in the digits of a number and in trailing white space.
template <int digits, bool whole_tail>
struct Gpt4 {
  static Byte Next(Byte p, Byte end) {
    if (*p == '\'') {
      if (const Byte q = SkipContraction<true>(p, end); q != p) return q;
    }
    const Character first = DecodeCharacter(p, end);
    if (first.char_class & kLetter) return SkipClass<kLetter>(p + first.length, end);
    if (first.char_class & kNumber) return SkipNumbers(p, end, digits);
    // This is [^\r\n\p{L}\p{N}]?\p{L}+ after its first character.
    const Byte q = p + first.length;
    const uint8_t second = q < end ? ClassAt(q, end) : 0;
    if (q < end && (second & kLetter) && !IsLineEnd(*p)) return SkipClass<kLetter>(q, end);
    if (!(first.char_class & kSpace) || (*p == ' ' && q < end && !(second & kNotOther))) {
      Byte r = SkipOutside<kNotOther>(q, end);
      while (r < end && IsLineEnd(*r)) ++r;
      return r;
    }
    return SpaceOrLines<whole_tail>(p, end);
  }
};

struct O200k {
  // Matches U*W+ (with `lower_needed`) or U+W*, where U = kUpper and W = kLower. Returns p if there is no match. It
  // takes as much as it can, then gives back.
  template <bool lower_needed>
  static Byte Word(Byte p, Byte end) {
    const Byte upper_end = SkipClass<kUpper>(p, end);
    if (!lower_needed) return upper_end == p ? p : SkipClass<kLower>(upper_end, end);
    const Byte lower_end = SkipClass<kLower>(upper_end, end);
    if (lower_end != upper_end) return lower_end;
    // The last character of U* that is in W too ends the match.
    for (Byte q = upper_end; q > p;) {
      Byte start = q - 1;
      while (start > p && IsUtf8Continuation(*start)) --start;
      if (ClassAt(start, end) & kLower) return q;
      q = start;
    }
    return p;
  }

  template <bool lower_needed>
  static Byte WordAfterPrefix(Byte p, Byte after_prefix, Byte end) {
    if (after_prefix != p) {
      if (const Byte q = Word<lower_needed>(after_prefix, end); q != after_prefix) return q;
    }
    return Word<lower_needed>(p, end);
  }

  static Byte Next(Byte p, Byte end) {
    const Character first = DecodeCharacter(p, end);
    const Byte next = p + first.length;
    if (first.char_class & kNumber) return SkipNumbers(p, end, 3);
    const bool letter = first.char_class & kLetter;
    const Byte after_prefix = letter || IsLineEnd(*p) ? p : next;
    const bool word = (first.char_class & kCased) || (after_prefix != p && next < end && (ClassAt(next, end) & kCased));
    if (word) {
      Byte q = WordAfterPrefix<true>(p, after_prefix, end);
      if (q == p) q = WordAfterPrefix<false>(p, after_prefix, end);
      if (q != p) return q < end && *q == '\'' ? SkipContraction<true>(q, end) : q;
    }
    if (!(first.char_class & kSpace) || (*p == ' ' && next < end && !(ClassAt(next, end) & kNotOther))) {
      Byte r = SkipOutside<kNotOther>(next, end);
      while (r < end && (IsLineEnd(*r) || *r == '/')) ++r;
      return r;
    }
    return SpaceOrLines<false>(p, end);
  }
};

struct Whitespace {
  static Byte Next(Byte p, Byte end) {
    return ClassAt(p, end) & kSpace ? SkipClass<kSpace>(p, end) : SkipOutside<kSpace>(p, end);
  }
};

// What a rule makes of a window, which begins where a pre-token begins and has `count` bytes of ASCII.
struct Window {
  const AsciiMasks& masks;
  Byte bytes;
  uint32_t count;
  // The bits of the bytes at which a pre-token begins are true up to here. Not true is what the byte behind decides.
  uint64_t known;
};

inline uint64_t BitsBelow(uint32_t count) { return (uint64_t{1} << count) - 1; }  // count < 64

// Moves the begin that a contraction has behind its apostrophe to its end. `quotes` are apostrophes that begin a
// pre-token.
template <bool fold>
inline uint64_t CutContractions(const Window& window, uint64_t quotes, uint64_t starts) {
  if (window.count < 3) return starts;
  for (quotes &= BitsBelow(window.count - 2); quotes != 0; quotes &= quotes - 1) {
    const auto at = static_cast<uint32_t>(__builtin_ctzll(quotes));
    const Byte p = window.bytes + at;
    const auto length = static_cast<uint32_t>(SkipContraction<fold>(p, window.bytes + window.count) - p);
    if (length == 0) continue;
    starts &= ~(uint64_t{2} << at);
    if (at + length < 64) starts |= uint64_t{1} << (at + length);
  }
  return starts;
}

// Bit i of `starts` says that a pre-token begins at byte i. What stands before the window does not matter, because a
// pre-token begins there: so a run that was cut begins anew.
inline uint64_t StartsOf(const Gpt2&, Window& window) {
  const AsciiMasks& m = window.masks;
  const uint64_t other = ~(m.letters | m.numbers | m.spaces);
  // White space begins with its run, and its last character (which is a run of its own if it is the only one) again.
  const uint64_t spaces = m.spaces & ~((m.spaces << 1) & (m.spaces >> 1));
  const uint64_t runs = (m.letters & ~(m.letters << 1)) | (m.numbers & ~(m.numbers << 1)) | (other & ~(other << 1));
  const uint64_t starts = spaces | (runs & ~(m.blanks << 1));
  return CutContractions<false>(window, m.quotes & (starts | 1), starts);
}

template <int digits, bool whole_tail>
inline uint64_t StartsOf(const Gpt4<digits, whole_tail>&, Window& window) {
  const AsciiMasks& m = window.masks;
  const uint64_t other = ~(m.letters | m.numbers | m.spaces);
  const uint64_t other_starts = other & ~(other << 1) & ~(m.blanks << 1);
  // Line ends directly behind punctuation belong to it. The sum clears the runs of line ends that begin there.
  const uint64_t own_lines = m.lines & (m.lines + (m.lines & (other << 1)));
  const uint64_t absorbed = m.lines & ~own_lines;
  const uint64_t spaces = m.spaces & ~absorbed;
  const uint64_t blanks = m.spaces & ~m.lines;  // white space that ends no line
  uint64_t starts = other_starts | (spaces & ~(spaces << 1)) | (blanks & ~(m.spaces >> 1));
  // White space up to its last line end is one pre-token, and what is behind that begins another.
  for (uint64_t behind = blanks & (own_lines << 1); behind != 0; behind &= behind - 1) {
    const auto at = static_cast<uint32_t>(__builtin_ctzll(behind));
    const uint32_t stop = at + static_cast<uint32_t>(__builtin_ctzll(~(blanks >> at)));
    if (stop >= window.count) {
      window.known &= BitsBelow(at);
      break;
    }
    if (!(m.lines >> stop & 1)) starts |= uint64_t{1} << at;
  }
  // A letter joins the one character before it that is no letter, number or line end and begins a pre-token.
  const uint64_t joining = blanks | (other_starts & (m.letters >> 1));
  starts |= m.letters & ~((m.letters | joining) << 1);
  if (digits == 1) {
    starts |= m.numbers;
  } else {
    uint64_t begins = m.numbers & ~(m.numbers << 1);
    const uint64_t fourth = m.numbers & (m.numbers << 1) & (m.numbers << 2) & (m.numbers << 3);
    for (; begins != 0; begins = fourth & (begins << digits)) starts |= begins;
  }
  return CutContractions<true>(window, m.quotes & other_starts, starts);
}

// Writes the ends of pre-tokens as far as 64 bytes tell them, and returns how many.
template <typename Rule>
inline size_t ScanWindow(MakeAsciiMasks make_masks, Byte begin, Byte p, Byte end, std::span<uint32_t> ends) {
  uint8_t padded[64];
  Byte window = p;
  if (end - p < 64) {
    std::memset(padded, 0x80, sizeof(padded));
    std::memcpy(padded, p, static_cast<size_t>(end - p));
    window = padded;
  }
  AsciiMasks masks;
  make_masks(window, masks);
  const uint32_t ascii = masks.beyond == 0 ? 64 : static_cast<uint32_t>(__builtin_ctzll(masks.beyond));
  if (ascii < 2) return 0;
  Window what{masks, window, ascii, BitsBelow(ascii - 1)};
  uint64_t starts = StartsOf(Rule(), what);
  starts &= what.known & ~uint64_t{1};
  const auto offset = static_cast<uint32_t>(p - begin);
  size_t count = 0;
  for (; starts != 0 && count < ends.size(); starts &= starts - 1) {
    ends[count++] = offset + static_cast<uint32_t>(__builtin_ctzll(starts));
  }
  return count;
}

template <typename Rule>
inline size_t Scan(std::string_view text, size_t from, std::span<uint32_t> ends) {
  const Byte begin = reinterpret_cast<Byte>(text.data());
  const Byte end = begin + text.size();
  [[maybe_unused]] const MakeAsciiMasks make_masks = AsciiMasksHere().back();
  Byte p = begin + from;
  size_t count = 0;
  while (p < end && count < ends.size()) {
    if constexpr (requires(Window& window) { StartsOf(Rule(), window); }) {
      // In other scripts a window would tell little.
      if (make_masks != AsciiMasksPortable && end - p >= 8 && *p < 0x80 && p[1] < 0x80) {
        const size_t found = ScanWindow<Rule>(make_masks, begin, p, end, ends.subspan(count));
        if (found > 0) {
          count += found;
          p = begin + ends[count - 1];
          continue;
        }
      }
    }
    p = Rule::Next(p, end);
    ends[count++] = static_cast<uint32_t>(p - begin);
  }
  return count;
}

}  // namespace

size_t ScanGpt2(std::string_view text, size_t from, std::span<uint32_t> ends) { return Scan<Gpt2>(text, from, ends); }
size_t ScanGpt4(std::string_view text, size_t from, std::span<uint32_t> ends) {
  return Scan<Gpt4<3, false>>(text, from, ends);
}
size_t ScanCl100k(std::string_view text, size_t from, std::span<uint32_t> ends) {
  return Scan<Gpt4<3, true>>(text, from, ends);
}
size_t ScanQwen2(std::string_view text, size_t from, std::span<uint32_t> ends) {
  return Scan<Gpt4<1, false>>(text, from, ends);
}
size_t ScanO200k(std::string_view text, size_t from, std::span<uint32_t> ends) { return Scan<O200k>(text, from, ends); }
size_t ScanWhitespace(std::string_view text, size_t from, std::span<uint32_t> ends) {
  return Scan<Whitespace>(text, from, ends);
}

}  // namespace cairn::corpus
