#include "common/rpc/token.h"

#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/reason.h"

namespace cairn {

absl::StatusOr<std::vector<std::string>> ReadTokenFile(const std::string& path) {
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
  if (::stat(path.c_str(), &info) != 0) {
    return fault(absl::StrCat("cannot be read: ", std::generic_category().message(errno)));
  }
  const std::string mode = absl::StrCat("0", absl::StrFormat("%o", info.st_mode & 0777));
  if (!file) return fault(absl::StrCat("cannot be read by this process: it has mode ", mode), accepted);
  if (info.st_mode & S_IRWXO) return fault(absl::StrCat("can be read by every user: it has mode ", mode), accepted);
  std::vector<std::string> tokens;
  for (std::string line; std::getline(file, line);) {
    absl::StripAsciiWhitespace(&line);
    if (line.empty()) continue;
    if (line.size() < kMinLength) {
      return fault(absl::StrCat("has a token of fewer than ", kMinLength, " characters"),
                   "Make a random one: openssl rand -hex 32. Each line of the file is a token.");
    }
    tokens.push_back(std::move(line));
    if (tokens.size() > kMaxTokens) {
      return fault(absl::StrCat("has more than ", kMaxTokens, " tokens, one a line"),
                   "Leave the new one and the one before it.");
    }
  }
  if (tokens.empty()) return fault("is empty");
  return tokens;
}

bool TokenMatches(std::string_view expected, std::string_view given) {
  if (expected.empty()) return true;
  return expected.size() == given.size() && CRYPTO_memcmp(expected.data(), given.data(), given.size()) == 0;
}

}  // namespace cairn
