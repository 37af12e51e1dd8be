#include "common/base/crc64.h"

#include <isa-l/crc64.h>

namespace cairn {
namespace {

// The reflected polynomial; bit 63 is the coefficient of x^0.
constexpr uint64_t kPolynomial = 0xc96c5795d7870f42;
constexpr uint64_t kOne = uint64_t{1} << 63;

// Returns a * b modulo the polynomial.
constexpr uint64_t Multiply(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  for (uint64_t bit = kOne; bit != 0; bit >>= 1) {
    if (a & bit) product ^= b;
    b = (b & 1) ? (b >> 1) ^ kPolynomial : b >> 1;
  }
  return product;
}

// kPowers[i] is x^(8 * 2^i): to append 2^i zero bytes is to multiply by it.
constexpr std::array<uint64_t, 64> MakePowers() {
  std::array<uint64_t, 64> powers{};
  powers[0] = kOne >> 8;
  for (size_t i = 1; i < powers.size(); ++i) powers[i] = Multiply(powers[i - 1], powers[i - 1]);
  return powers;
}
constexpr std::array<uint64_t, 64> kPowers = MakePowers();

}  // namespace

uint64_t ExtendRemainder64(uint64_t remainder, const void* data, size_t size) {
  // ISA-L inverts what it takes and what it returns.
  return ~crc64_ecma_refl(~remainder, static_cast<const unsigned char*>(data), size);
}

uint64_t AppendZeros64(uint64_t remainder, uint64_t count) {
  for (size_t i = 0; count != 0; ++i, count >>= 1) {
    if (count & 1) remainder = Multiply(remainder, kPowers[i]);
  }
  return remainder;
}

ZeroAppender64::ZeroAppender64(uint64_t count) {
  for (size_t byte = 0; byte < products_.size(); ++byte) {
    std::array<uint64_t, 256>& products = products_[byte];
    products[0] = 0;
    for (size_t bit = 0; bit < 8; ++bit) {
      products[size_t{1} << bit] = AppendZeros64(uint64_t{1} << (8 * byte + bit), count);
    }
    for (size_t value = 3; value < products.size(); ++value) {
      const size_t lowest = value & -value;
      products[value] = products[lowest] ^ products[value ^ lowest];
    }
  }
}

uint64_t ZeroAppender64::Append(uint64_t remainder) const {
  uint64_t product = 0;
  for (size_t byte = 0; byte < products_.size(); ++byte) product ^= products_[byte][(remainder >> (8 * byte)) & 0xff];
  return product;
}

uint64_t Crc64FromRemainder(uint64_t remainder, uint64_t size) {
  return ~(remainder ^ AppendZeros64(~uint64_t{0}, size));
}

}  // namespace cairn
