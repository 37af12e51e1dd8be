#include "coordinator/server/transfer_secret.h"

#include <utility>

#include "common/base/digest.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr char kPath[] = ".cairn/transfer.secret";

}  // namespace

absl::StatusOr<TransferSecret> TransferSecret::Load(Storage& storage) {
  CAIRN_ASSIGN_OR_RETURN(std::string secret, storage.ReadOrMakeSecret(kPath));
  return TransferSecret(std::move(secret));
}

std::string TransferSecret::TokenFor(const std::string& plan_digest) const {
  Digester digester;
  digester.Add("cairn transfer token 1").Add(secret_).Add(plan_digest);
  return DigestHex(digester.Finish());
}

std::string TransferSecret::TokenForLoad(const std::string& plan_digest, const std::string& calls_digest) const {
  Digester digester;
  digester.Add("cairn transfer token of a load 1").Add(secret_).Add(plan_digest).Add(calls_digest);
  return DigestHex(digester.Finish());
}

}  // namespace cairn
