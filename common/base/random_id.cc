#include "common/base/random_id.h"

#include <sys/random.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

namespace cairn {
namespace {

// A read of up to this many bytes is never interrupted and never short, once the kernel's pool is ready (getrandom(2)).
constexpr size_t kMostAtOnce = 256;

void Fill(void* bytes, size_t size) {
  if (getrandom(bytes, size, 0) != static_cast<ssize_t>(size)) std::abort();
}

}  // namespace

uint64_t RandomId() {
  uint64_t id = 0;
  while (id == 0) Fill(&id, sizeof(id));
  return id;
}

std::string RandomToken(int bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string token;
  for (int i = 0; i < bytes; ++i) {
    unsigned char byte;
    Fill(&byte, 1);
    token += kHex[byte >> 4];
    token += kHex[byte & 15];
  }
  return token;
}

std::string RandomBytes(size_t bytes) {
  std::string random(bytes, '\0');
  for (size_t begin = 0; begin < bytes; begin += kMostAtOnce) {
    Fill(random.data() + begin, std::min(kMostAtOnce, bytes - begin));
  }
  return random;
}

std::string ShortId(uint64_t id) {
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016" PRIx64, id);
  return ShortId(std::string_view(digits, 16));
}

std::string ShortId(std::string_view token) { return std::string(token.substr(0, 4)) + "…"; }

}  // namespace cairn
