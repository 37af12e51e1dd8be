#include "common/rpc/token.h"

#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/reason.h"

namespace cairn {

absl::StatusOr<std::string> ReadTokenFile(const std::string& path) {
  if (path.empty()) return std::string();
  constexpr size_t kMinLength = 16;
  const auto fault = [&](absl::string_view why, const std::string& next = "") {
    ErrorMetadata metadata = {{"file", path}};
    if (!next.empty()) metadata.emplace_back("next", next);
    return MakeError(Reason::kBadToken, absl::StrCat("the token file ", path, " ", why), metadata);
  };
  // A mounted Secret belongs to root and has mode 0644, unless the pod says otherwise.
  const std::string accepted = absl::StrCat(
      "Let this process (user ", geteuid(), ") read it and others not: mode 0400 or 0600 with this user as ",
      "its owner, or 0440 with a group of this process. For a Secret of Kubernetes set `defaultMode: 0440` ",
      "in its volume and `fsGroup` in the pod's securityContext.");
  struct stat info;
  std::ifstream file(path);
  std::string token;
  if (::stat(path.c_str(), &info) != 0) {
    return fault(absl::StrCat("cannot be read: ", std::generic_category().message(errno)));
  }
  const std::string mode = absl::StrCat("0", absl::StrFormat("%o", info.st_mode & 0777));
  if (!file) return fault(absl::StrCat("cannot be read by this process: it has mode ", mode), accepted);
  if (!std::getline(file, token)) return fault("is empty");
  if (info.st_mode & S_IRWXO) return fault(absl::StrCat("can be read by every user: it has mode ", mode), accepted);
  absl::StripAsciiWhitespace(&token);
  if (token.size() < kMinLength) return fault("has fewer than 16 characters");
  return token;
}

bool TokenMatches(std::string_view expected, std::string_view given) {
  if (expected.empty()) return true;
  return expected.size() == given.size() && CRYPTO_memcmp(expected.data(), given.data(), given.size()) == 0;
}

}  // namespace cairn
