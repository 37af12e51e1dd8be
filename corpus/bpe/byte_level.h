// GPT-2's byte-level alphabet: every byte as one printable character, so that token files are text.
#ifndef CAIRN_CORPUS_BPE_BYTE_LEVEL_H_
#define CAIRN_CORPUS_BPE_BYTE_LEVEL_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cairn::corpus {

// The code point that stands for a byte: itself for 33-126, 161-172 and 174-255; the other 68 bytes become U+0100 and
// on, in byte order (encoder.py of openai/gpt-2).
char32_t ByteLevelCodePoint(uint8_t byte);

// The 256 bytes by the code points that stand for them, ascending: Hugging Face's order of the alphabet.
const std::array<uint8_t, 256>& ByteLevelOrder();

// The characters for bytes, as UTF-8, and back; nothing for text with another character in it.
std::string ToByteLevel(std::string_view bytes);
std::optional<std::string> FromByteLevel(std::string_view text);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_BYTE_LEVEL_H_
