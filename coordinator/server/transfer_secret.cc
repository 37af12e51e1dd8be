#include "coordinator/server/transfer_secret.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/random_id.h"
#include "common/base/status.h"
#include "common/rpc/reason.h"
#include "common/storage/errno_error.h"

namespace cairn {
namespace {

constexpr char kPath[] = ".cairn/transfer.secret";
constexpr int kSecretBytes = 32;

}  // namespace

absl::StatusOr<TransferSecret> TransferSecret::Load(PosixStorage& storage) {
  // Only the coordinator that holds the root's lock comes here, so nobody else makes it meanwhile.
  if (!storage.Exists(kPath)) {
    CAIRN_RETURN_IF_ERROR(storage.MakeDirectories(".cairn"));
    const std::string partial = absl::StrCat(kPath, ".partial");
    CAIRN_RETURN_IF_ERROR(storage.RemoveAll(partial));
    CAIRN_ASSIGN_OR_RETURN(const UniqueFd file, storage.OpenFile(partial, O_WRONLY | O_CREAT | O_EXCL, 0600));
    int error = WriteFully(file.get(), RandomToken(kSecretBytes));
    if (error == 0 && fsync(file.get()) != 0) error = errno;
    if (error != 0) return ErrnoError(error, "write", absl::StrCat(storage.root(), "/", partial));
    CAIRN_RETURN_IF_ERROR(storage.Rename(partial, kPath));
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
