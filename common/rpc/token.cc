#include "common/rpc/token.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/file/unique_fd.h"
#include "common/status/reason.h"

namespace cairn {

absl::StatusOr<std::vector<std::string>> ReadTokenFile(const std::string& path) {
  constexpr size_t kMinLength = 16, kMaxFileBytes = 4096;
  const auto fault = [&](absl::string_view why, const std::string& next = "") {
    ErrorMetadata metadata = {{"file", path}};
    if (!next.empty()) metadata.emplace_back("next", next);
    return MakeError(Reason::kBadToken, absl::StrCat("the token file ", path, " ", why), metadata);
  };
  // A mounted Kubernetes Secret belongs to root and has mode 0644, unless the pod sets another mode.
  const std::string accepted = absl::StrCat(
      "Let this process (user ", geteuid(), ") read it and others not: mode 0400 or 0600 with this user as ",
      "its owner, or 0440 with a group of this process. For a Secret of Kubernetes set `defaultMode: 0440` ",
      "in its volume and `fsGroup` in the pod's securityContext.");
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    return fault(absl::StrCat("cannot be read: ", std::generic_category().message(errno)));
  }
  const std::string mode = absl::StrCat("0", absl::StrFormat("%o", info.st_mode & 0777));
  // O_NONBLOCK: opening a FIFO would wait for a writer.
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid() || fstat(file.get(), &info) != 0) {
    return fault(absl::StrCat("cannot be read by this process: it has mode ", mode), accepted);
  }
  if (!S_ISREG(info.st_mode)) {
    return fault("is no regular file", "Put the token into a file, which is read again whenever it changes.");
  }
  if (info.st_mode & S_IRWXO) return fault(absl::StrCat("can be read by every user: it has mode ", mode), accepted);
  std::string text(kMaxFileBytes + 1, '\0');
  size_t size = 0;
  for (ssize_t got = 1; got > 0 && size < text.size(); size += static_cast<size_t>(got)) {
    got = read(file.get(), text.data() + size, text.size() - size);  // of a regular file, which no signal interrupts
    if (got < 0) return fault(absl::StrCat("cannot be read: ", std::generic_category().message(errno)));
  }
  if (size > kMaxFileBytes) return fault(absl::StrCat("is larger than ", kMaxFileBytes, " bytes"));
  text.resize(size);
  std::vector<std::string> tokens;
  for (const absl::string_view piece : absl::StrSplit(text, '\n')) {
    std::string line(absl::StripAsciiWhitespace(piece));
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
