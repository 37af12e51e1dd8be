#include "corpus/shuffle/line_key.h"

#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>

#include "common/base/digest.h"

namespace cairn::corpus {
namespace {

constexpr size_t kBatch = 256;
constexpr std::string_view kDomain = "cairn corpus shuffle 1";

}  // namespace

LineKeyMaker::LineKeyMaker(uint64_t seed) {
  const std::string digest = Digester().Add(kDomain).Add(seed).Finish();
  EVP_CIPHER_CTX* const context = EVP_CIPHER_CTX_new();
  EVP_EncryptInit_ex(context, EVP_aes_128_ecb(), nullptr, reinterpret_cast<const unsigned char*>(digest.data()),
                     nullptr);
  EVP_CIPHER_CTX_set_padding(context, 0);
  context_ = context;
}

LineKeyMaker::~LineKeyMaker() { EVP_CIPHER_CTX_free(static_cast<EVP_CIPHER_CTX*>(context_)); }

void LineKeyMaker::Make(std::span<const LinePosition> positions, std::span<LineKey> keys) {
  uint64_t blocks[2 * kBatch];
  for (size_t begin = 0; begin < positions.size(); begin += kBatch) {
    const size_t count = std::min(kBatch, positions.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      blocks[2 * i] = positions[begin + i] >> kOffsetBits;
      blocks[2 * i + 1] = positions[begin + i] & kMaxOffset;
    }
    int written = 0;
    EVP_EncryptUpdate(static_cast<EVP_CIPHER_CTX*>(context_), reinterpret_cast<unsigned char*>(&keys[begin]), &written,
                      reinterpret_cast<const unsigned char*>(blocks), static_cast<int>(count * sizeof(LineKey)));
  }
}

}  // namespace cairn::corpus
