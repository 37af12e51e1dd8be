#include "common/base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>

namespace cairn {
namespace {

// The reflected polynomial; bit 31 is the coefficient of x^0.
constexpr uint32_t kPolynomial = 0x82f63b78;
constexpr uint32_t kOne = 0x80000000;

// Returns a * b modulo the polynomial.
constexpr uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if (a & bit) product ^= b;
    b = (b & 1) ? (b >> 1) ^ kPolynomial : b >> 1;
  }
  return product;
}

// kPowers[i] is x^(8 * 2^i): to append 2^i zero bytes is to multiply by it.
constexpr std::array<uint32_t, 64> MakePowers() {
  std::array<uint32_t, 64> powers{};
  powers[0] = kOne >> 8;
  for (size_t i = 1; i < powers.size(); ++i) powers[i] = Multiply(powers[i - 1], powers[i - 1]);
  return powers;
}
constexpr std::array<uint32_t, 64> kPowers = MakePowers();

}  // namespace

uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t size) {
  // ISA-L counts bytes in an int. Its CRC register is the complement of the CRC of RFC 3720.
  constexpr size_t kMost = size_t{1} << 30;
  auto* bytes = static_cast<const unsigned char*>(data);
  uint32_t state = ~crc;
  while (size > 0) {
    const size_t part = std::min(size, kMost);
    state = crc32_iscsi(const_cast<unsigned char*>(bytes), static_cast<int>(part), state);
    bytes += part;
    size -= part;
  }
  return ~state;
}

uint32_t CombineCrc32c(uint32_t crc_a, uint32_t crc_b, uint64_t size_b) {
  for (size_t i = 0; size_b != 0; ++i, size_b >>= 1) {
    if (size_b & 1) crc_a = Multiply(crc_a, kPowers[i]);
  }
  return crc_a ^ crc_b;
}

}  // namespace cairn
