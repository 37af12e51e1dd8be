#include "coordinator/server/transfer_secret.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/random_id.h"
#include "common/base/status.h"
#include "common/rpc/reason.h"

namespace cairn {
namespace {

constexpr char kPath[] = ".cairn/transfer.secret";
constexpr int kSecretBytes = 32;

}  // namespace

absl::StatusOr<TransferSecret> TransferSecret::Load(PosixStorage& storage) {
  CAIRN_RETURN_IF_ERROR(storage.MakeDirectories(".cairn"));
  // Whoever comes first makes it, and all read that one.
  if (!storage.Exists(kPath)) {
    CAIRN_RETURN_IF_ERROR(storage.PutIfAbsent(kPath, RandomToken(kSecretBytes), 0600).status());
  }
  CAIRN_ASSIGN_OR_RETURN(std::string secret, storage.ReadFile(kPath, 4096));
  if (secret.size() != 2 * kSecretBytes) {
    return MakeError(Reason::kFileTruncated,
                     absl::StrCat(storage.root(), "/", kPath, " has ", secret.size(), " bytes instead of ",
                                  2 * kSecretBytes, "; remove it, and a new one is made"),
                     {{"file", kPath}});
  }
  return TransferSecret(std::move(secret));
}

std::string TransferSecret::TokenFor(const std::string& plan_digest) const {
  Digester digester;
  digester.Add("cairn transfer token 1").Add(secret_).Add(plan_digest);
  return DigestHex(digester.Finish());
}

}  // namespace cairn
