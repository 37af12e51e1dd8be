#include "cli/base/own_name.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace cairn::cli {

OwnName LookUpOwnName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return {"", true};
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const bool has_address = getaddrinfo(name, nullptr, &hints, &found) == 0;
  if (has_address) freeaddrinfo(found);
  return {name, has_address};
}

std::string TextOfNoAddress(const std::string& name) {
  return absl::StrCat("this machine's own name, ", name, ", has no address: `torchrun --standalone` waits for it for ",
                      "ever, because its ranks meet by that name");
}

std::string NextOfNoAddress(const std::string& name) {
  return absl::StrCat("Give torchrun --local-addr 127.0.0.1, or add the line \"127.0.1.1 ", name, "\" to /etc/hosts.");
}

}  // namespace cairn::cli
