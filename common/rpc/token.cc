#include "common/rpc/token.h"

#include <openssl/crypto.h>
#include <sys/stat.h>

#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn {

absl::StatusOr<std::string> ReadTokenFile(const std::string& path) {
  if (path.empty()) return std::string();
  constexpr size_t kMinLength = 16;
  const auto fault = [&](std::string_view why) {
    return MakeError(Reason::kBadToken, absl::StrCat("the token file ", path, " ", std::string(why)), {{"file", path}});
  };
  struct stat info;
  std::ifstream file(path);
  std::string token;
  if (!file || ::stat(path.c_str(), &info) != 0 || !std::getline(file, token)) return fault("cannot be read");
  if (info.st_mode & S_IRWXO) return fault("can be read by every user: chmod o= it");
  absl::StripAsciiWhitespace(&token);
  if (token.size() < kMinLength) return fault("has fewer than 16 characters");
  return token;
}

bool TokenMatches(std::string_view expected, std::string_view given) {
  if (expected.empty()) return true;
  return expected.size() == given.size() && CRYPTO_memcmp(expected.data(), given.data(), given.size()) == 0;
}

}  // namespace cairn
