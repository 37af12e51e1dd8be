#include "common/file/secret_file.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {

absl::StatusOr<std::string> ReadSecret(ConfinedDirectory& root, std::string_view path) {
  CAIRN_ASSIGN_OR_RETURN(std::string secret, root.ReadFile(path, 4096));
  const auto hex = [](unsigned char c) { return std::isxdigit(c) != 0; };
  if (secret.size() != kSecretLength || !std::all_of(secret.begin(), secret.end(), hex)) {
    return MakeError(
        Reason::kFileTruncated,
        absl::StrCat(root.path(), "/", std::string(path), " has ", secret.size(), " bytes and is not the secret of ",
                     kSecretLength, " digits that Cairn writes; remove it, and a new one is made"),
        {{"file", std::string(path)}});
  }
  return secret;
}

absl::StatusOr<std::string> ReadOrMakeSecret(ConfinedDirectory& root, std::string_view path) {
  const size_t cut = path.rfind('/');
  const std::string_view directory = cut == std::string_view::npos ? "" : path.substr(0, cut);
  if (root.Exists(path)) {
    // The process that made the file may have ended before its name was durable.
    CAIRN_RETURN_IF_ERROR(root.SettleDirectory(directory));
  } else {
    if (!directory.empty()) CAIRN_RETURN_IF_ERROR(root.MakeDirectories(directory));
    // If several processes put a secret, the first one wins, and all read that one.
    CAIRN_RETURN_IF_ERROR(root.PutIfAbsent(path, RandomToken(kSecretLength / 2), 0600).status());
  }
  return ReadSecret(root, path);
}

}  // namespace cairn
