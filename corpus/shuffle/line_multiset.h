// Computes a checksum of a multiset of lines. It is the same for every order of the same lines, and another one (except
// with a chance of 2^-64) if a line is lost, doubled or changed.
#ifndef CAIRN_CORPUS_SHUFFLE_LINE_MULTISET_H_
#define CAIRN_CORPUS_SHUFFLE_LINE_MULTISET_H_

#include <isa-l/crc64.h>

#include <cstdint>
#include <string_view>

namespace cairn::corpus {

// Holds the sums, modulo 2^64, of two mixes of each line's CRC-64 and length. The sums of parts can be added.
struct LineMultiset {
  uint64_t lines = 0;
  uint64_t bytes = 0;  // without separators
  uint64_t sum_a = 0;
  uint64_t sum_b = 0;

  bool operator==(const LineMultiset&) const = default;
  LineMultiset& operator+=(const LineMultiset& other) {
    lines += other.lines;
    bytes += other.bytes;
    sum_a += other.sum_a;
    sum_b += other.sum_b;
    return *this;
  }

  void Add(std::string_view line) { AddHashed(Hash(0, line), line.size()); }

  // Hashes lines that come in pieces: it takes the hash so far (0 at first). AddHashed then takes the whole line's hash
  // and length.
  static uint64_t Hash(uint64_t hash, std::string_view piece) {
    return crc64_ecma_refl(hash, reinterpret_cast<const uint8_t*>(piece.data()), piece.size());
  }
  void AddHashed(uint64_t hash, uint64_t size) {
    ++lines;
    bytes += size;
    sum_a += Mix(hash + size * 0x9e3779b97f4a7c15);
    sum_b += Mix((hash ^ 0xd6e8feb86659fd93) - size);
  }

 private:
  // The finaliser of splitmix64 (Stafford's variant 13) is a permutation that spreads every bit.
  static uint64_t Mix(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
  }
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SHUFFLE_LINE_MULTISET_H_
