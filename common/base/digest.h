// SHA-256 digests (FIPS 180-4): the identity of layouts and plans. Peers choose the bytes, so collisions must be
// out of reach.
#ifndef CAIRN_COMMON_BASE_DIGEST_H_
#define CAIRN_COMMON_BASE_DIGEST_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace cairn {

inline constexpr size_t kDigestBytes = 32;

// Returns the 32 raw bytes of the digest of `bytes`.
std::string Digest(std::string_view bytes);

// Computes the digest of a list of parts. The length of each part is hashed before the part, so ("ab", "c") and ("a",
// "bc") have different digests. Not thread-safe.
class Digester {
 public:
  Digester();
  ~Digester();
  Digester(const Digester&) = delete;
  Digester& operator=(const Digester&) = delete;

  Digester& Add(std::string_view part);
  Digester& Add(uint64_t number);
  // Must be called once only.
  std::string Finish();

 private:
  void* context_;  // EVP_MD_CTX
};

// Computes what Digest returns, from bytes that come piece by piece. A copy continues with the state of the original.
// Not thread-safe.
class RunningDigest {
 public:
  RunningDigest();
  RunningDigest(const RunningDigest& other);
  RunningDigest& operator=(const RunningDigest&) = delete;
  ~RunningDigest();

  void Add(std::string_view bytes);
  // Must be called once only.
  std::string Finish();

 private:
  void* context_;  // EVP_MD_CTX
};

// Returns lower-case hexadecimal digits, for people and file names.
std::string DigestHex(std::string_view digest);

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_DIGEST_H_
