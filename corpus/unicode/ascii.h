// Tells text of ASCII from other text.
#ifndef CAIRN_CORPUS_UNICODE_ASCII_H_
#define CAIRN_CORPUS_UNICODE_ASCII_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace cairn::corpus {

// Inline because it stands in innermost loops, for words of a few bytes.
inline bool IsAscii(std::string_view text) {
  uint64_t all = 0;
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t eight;
    std::memcpy(&eight, text.data() + i, 8);
    all |= eight;
  }
  for (; i < text.size(); ++i) all |= static_cast<uint8_t>(text[i]);
  return (all & 0x8080808080808080u) == 0;
}

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_UNICODE_ASCII_H_
