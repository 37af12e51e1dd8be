#include "corpus/bpe/byte_level.h"

#include <algorithm>

#include "corpus/unicode/class_table.h"

namespace cairn::corpus {
namespace {

constexpr bool IsPrintable(uint32_t byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
}

struct Maps {
  std::array<char32_t, 256> code_point_of{};
  std::array<int16_t, 324> byte_of{};
  std::array<uint8_t, 256> order{};
};

constexpr Maps MakeMaps() {
  Maps maps;
  for (auto& byte : maps.byte_of) byte = -1;
  char32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    maps.code_point_of[byte] = IsPrintable(byte) ? byte : next++;
    maps.byte_of[maps.code_point_of[byte]] = static_cast<int16_t>(byte);
  }
  size_t count = 0;
  for (const int16_t byte : maps.byte_of) {
    if (byte >= 0) maps.order[count++] = static_cast<uint8_t>(byte);
  }
  return maps;
}
constexpr Maps kMaps = MakeMaps();

}  // namespace

const std::array<uint8_t, 256>& ByteLevelOrder() { return kMaps.order; }

std::string ToByteLevel(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const char32_t code = kMaps.code_point_of[static_cast<uint8_t>(c)];
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else {
      text += static_cast<char>(0xC0 | code >> 6);
      text += static_cast<char>(0x80 | (code & 0x3F));
    }
  }
  return text;
}

std::optional<std::string> FromByteLevel(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  const auto* p = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t* const end = p + text.size();
  while (p < end) {
    const Character character = DecodeCharacter(p, end);
    if (character.code_point >= kMaps.byte_of.size()) return std::nullopt;
    const int16_t byte = kMaps.byte_of[character.code_point];
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
    p += character.length;
  }
  return bytes;
}

}  // namespace cairn::corpus
