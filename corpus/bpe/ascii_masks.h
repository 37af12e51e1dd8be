// Classifies 64 bytes at a time, for the scanners.
#ifndef CAIRN_CORPUS_BPE_ASCII_MASKS_H_
#define CAIRN_CORPUS_BPE_ASCII_MASKS_H_

#include <cstdint>
#include <span>

namespace cairn::corpus {

// Bit i tells of byte i. A byte beyond ASCII is in `beyond` alone.
struct AsciiMasks {
  uint64_t letters;
  uint64_t numbers;
  uint64_t spaces;  // tab, LF, VT, FF, CR and the blank
  uint64_t lines;   // LF and CR
  uint64_t blanks;
  uint64_t quotes;  // apostrophes
  uint64_t beyond;

  bool operator==(const AsciiMasks&) const = default;
};

// Each reads 64 bytes from p on. All give the same.
using MakeAsciiMasks = void (*)(const uint8_t* p, AsciiMasks& masks);

void AsciiMasksPortable(const uint8_t* p, AsciiMasks& masks);

// Returns those that this processor has, the fastest last. If that is AsciiMasksPortable, it is faster to look at one
// character after the other.
std::span<const MakeAsciiMasks> AsciiMasksHere();

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_ASCII_MASKS_H_
