#include "common/base/digest.h"

#include <openssl/evp.h>

#include <cstring>

#include "absl/strings/escaping.h"

namespace cairn {

std::string Digest(std::string_view bytes) {
  std::string digest(kDigestBytes, '\0');
  EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()), nullptr, EVP_sha256(),
             nullptr);
  return digest;
}

Digester::Digester() : context_(EVP_MD_CTX_new()) {
  EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_), EVP_sha256(), nullptr);
}

Digester::~Digester() { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_)); }

Digester& Digester::Add(std::string_view part) {
  Add(uint64_t{part.size()});
  EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), part.data(), part.size());
  return *this;
}

Digester& Digester::Add(uint64_t number) {
  unsigned char bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(number >> (8 * i));
  EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), bytes, sizeof(bytes));
  return *this;
}

std::string Digester::Finish() {
  std::string digest(kDigestBytes, '\0');
  EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_), reinterpret_cast<unsigned char*>(digest.data()), nullptr);
  return digest;
}

RunningDigest::RunningDigest() : context_(EVP_MD_CTX_new()) {
  EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_), EVP_sha256(), nullptr);
}

RunningDigest::RunningDigest(const RunningDigest& other) : context_(EVP_MD_CTX_new()) {
  EVP_MD_CTX_copy_ex(static_cast<EVP_MD_CTX*>(context_), static_cast<EVP_MD_CTX*>(other.context_));
}

RunningDigest::~RunningDigest() { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_)); }

void RunningDigest::Add(std::string_view bytes) {
  EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), bytes.data(), bytes.size());
}

std::string RunningDigest::Finish() {
  std::string digest(kDigestBytes, '\0');
  EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_), reinterpret_cast<unsigned char*>(digest.data()), nullptr);
  return digest;
}

std::string DigestHex(std::string_view digest) {
  return absl::BytesToHexString(absl::string_view(digest.data(), digest.size()));
}

}  // namespace cairn
