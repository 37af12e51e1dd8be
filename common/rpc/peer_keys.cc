#include "common/rpc/peer_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace cairn {

std::string Mac(std::string_view key, std::string_view text) {
  std::string mac(kMacBytes, '\0');
  const unsigned char* made =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
           text.size(), reinterpret_cast<unsigned char*>(mac.data()), nullptr);
  if (made == nullptr) std::abort();
  return mac;
}

bool SameMac(std::string_view one, std::string_view other) {
  return one.size() == other.size() && CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

std::shared_ptr<const PeerKeys> PeerKeys::Of(const std::vector<std::string>& tokens, ServerRole role) {
  const std::string purpose = role == ServerRole::kCoordinator ? "to a coordinator" : "to an agent";
  std::vector<PeerKey> keys;
  for (const std::string& token : tokens) {
    keys.push_back({.server = Mac(token, absl::StrCat("cairn peer proof 1, server, ", purpose)),
                    .client = Mac(token, absl::StrCat("cairn peer proof 1, client, ", purpose))});
  }
  return std::shared_ptr<const PeerKeys>(new PeerKeys(std::move(keys)));
}

}  // namespace cairn
