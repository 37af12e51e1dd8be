// Writes the place of a line before it, so that it keeps its place in the inputs, and with it its key, in another file.
#ifndef CAIRN_CORPUS_SHUFFLE_PLACED_LINE_H_
#define CAIRN_CORPUS_SHUFFLE_PLACED_LINE_H_

#include <cstddef>
#include <cstdint>

#include "corpus/shuffle/line_key.h"

namespace cairn::corpus {

// Seven bits of the place are in each byte, the lowest first. The eighth differs from that of the separator, so no byte
// of a place ends a line.
inline constexpr size_t kPlaceBytes = 10;

inline void PutPlace(LinePosition place, char separator, char* to) {
  const unsigned mark = ~static_cast<unsigned>(static_cast<unsigned char>(separator)) & 0x80u;
  for (size_t i = 0; i < kPlaceBytes; ++i, place >>= 7) to[i] = static_cast<char>(mark | (place & 0x7fu));
}

inline LinePosition GetPlace(const char* from) {
  LinePosition place = 0;
  for (size_t i = kPlaceBytes; i-- > 0;) place = place << 7 | (static_cast<unsigned char>(from[i]) & 0x7fu);
  return place;
}

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SHUFFLE_PLACED_LINE_H_
