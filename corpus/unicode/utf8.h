// Takes single steps through UTF-8 that is known to be valid.
#ifndef CAIRN_CORPUS_UNICODE_UTF8_H_
#define CAIRN_CORPUS_UNICODE_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace cairn::corpus {

// Returns the scalar value at text[i] and moves i behind it. The text must be valid UTF-8 and i the first byte of a
// character.
inline char32_t NextScalar(std::string_view text, size_t& i) {
  const auto byte = [&](size_t k) { return static_cast<char32_t>(static_cast<unsigned char>(text[i + k])); };
  const char32_t lead = byte(0);
  char32_t scalar = lead;
  size_t length = 1;
  if (lead >= 0xF0) {
    scalar = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    length = 4;
  } else if (lead >= 0xE0) {
    scalar = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    length = 3;
  } else if (lead >= 0xC0) {
    scalar = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
    length = 2;
  }
  i += length;
  return scalar;
}

inline void AppendUtf8(char32_t scalar, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  if (scalar < 0x80) {
    put(scalar);
  } else if (scalar < 0x800) {
    put(0xC0 | scalar >> 6);
    put(0x80 | (scalar & 0x3F));
  } else if (scalar < 0x10000) {
    put(0xE0 | scalar >> 12);
    put(0x80 | (scalar >> 6 & 0x3F));
    put(0x80 | (scalar & 0x3F));
  } else {
    put(0xF0 | scalar >> 18);
    put(0x80 | (scalar >> 12 & 0x3F));
    put(0x80 | (scalar >> 6 & 0x3F));
    put(0x80 | (scalar & 0x3F));
  }
}

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_UNICODE_UTF8_H_
