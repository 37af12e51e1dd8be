#include "corpus/unicode/class_table.h"

#include <cstring>

#include "corpus/unicode/class_table_data.inc"

namespace cairn::corpus {
namespace {

constexpr ByteClassTable MakeByteClasses() {
  ByteClassTable classes{};
  for (size_t byte = 0; byte < 256; ++byte)
    classes[byte] = byte < 128 ? kUnicodeClasses[kUnicodeBlockOf[0]][byte] : kNotAscii;
  return classes;
}

}  // namespace

const ByteClassTable kByteClass = MakeByteClasses();

size_t FindInvalidUtf8(std::string_view text) {
  const uint8_t* const begin = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t* const end = begin + text.size();
  const uint8_t* p = begin;
  while (p < end) {
    if (end - p >= 8) {
      uint64_t word;
      std::memcpy(&word, p, 8);
      if ((word & 0x8080808080808080u) == 0) {
        p += 8;
        continue;
      }
    }
    const Character character = DecodeCharacter(p, end);
    if (character.code_point == Character::kInvalid) return static_cast<size_t>(p - begin);
    p += character.length;
  }
  return std::string_view::npos;
}

}  // namespace cairn::corpus
