#include "common/storage/secret_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/base/status.h"
#include "common/rpc/reason.h"
#include "common/storage/errno_error.h"

namespace cairn {

absl::StatusOr<std::string> ReadSecret(PosixStorage& storage, std::string_view path) {
  CAIRN_ASSIGN_OR_RETURN(std::string secret, storage.ReadFile(path, 4096));
  const auto hex = [](unsigned char c) { return std::isxdigit(c) != 0; };
  if (secret.size() != kSecretLength || !std::all_of(secret.begin(), secret.end(), hex)) {
    return MakeError(
        Reason::kFileTruncated,
        absl::StrCat(storage.root(), "/", std::string(path), " has ", secret.size(), " bytes and is not the secret of ",
                     kSecretLength, " digits that stood there; remove it, and a new one is made"),
        {{"file", std::string(path)}});
  }
  return secret;
}

absl::StatusOr<std::string> ReadOrMakeSecret(PosixStorage& storage, std::string_view path) {
  const size_t cut = path.rfind('/');
  const std::string_view directory = cut == std::string_view::npos ? "" : path.substr(0, cut);
  if (storage.Exists(path)) {
    // Whoever made it may have ended before its name was durable.
    CAIRN_RETURN_IF_ERROR(storage.SyncDirectory(directory));
  } else {
    if (!directory.empty()) CAIRN_RETURN_IF_ERROR(storage.MakeDirectories(directory));
    const std::string partial = absl::StrCat(std::string(path), ".partial");
    CAIRN_RETURN_IF_ERROR(storage.RemoveAll(partial));
    CAIRN_ASSIGN_OR_RETURN(const UniqueFd file, storage.OpenFile(partial, O_WRONLY | O_CREAT | O_EXCL, 0600));
    int error = WriteFully(file.get(), RandomToken(kSecretLength / 2));
    if (error == 0 && fsync(file.get()) != 0) error = errno;
    if (error != 0) return ErrnoError(error, "write", absl::StrCat(storage.root(), "/", partial));
    CAIRN_RETURN_IF_ERROR(storage.Rename(partial, path));
  }
  return ReadSecret(storage, path);
}

}  // namespace cairn
