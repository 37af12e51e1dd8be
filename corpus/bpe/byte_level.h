// GPT-2's byte-level alphabet, which writes every byte as one printable character, so that token files are text. The
// code point of a byte is the byte itself for 33-126, 161-172 and 174-255. The other 68 bytes become U+0100 and the
// following, in byte order (encoder.py of openai/gpt-2).
#ifndef CAIRN_CORPUS_BPE_BYTE_LEVEL_H_
#define CAIRN_CORPUS_BPE_BYTE_LEVEL_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cairn::corpus {

// Returns the 256 bytes ordered by the code points that stand for them, which is Hugging Face's order of the alphabet.
const std::array<uint8_t, 256>& ByteLevelOrder();

// ToByteLevel writes bytes as characters in UTF-8. FromByteLevel does the reverse, and returns nothing for text with
// any other character.
std::string ToByteLevel(std::string_view bytes);
std::optional<std::string> FromByteLevel(std::string_view text);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_BYTE_LEVEL_H_
