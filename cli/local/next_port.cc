#include "cli/local/next_port.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::cli {

absl::StatusOr<std::string> AddressAfter(const std::string& address, int number, const std::string& option) {
  constexpr int kHighestPort = 65535;
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 ||
      port > kHighestPort - number) {
    return MakeError(
        Reason::kBadRequest,
        absl::StrCat(option, "=", address, " has no port that leaves room for ", number, " more behind it"),
        {{"option", option}, {"next", absl::StrCat("Give a host and a lower port, as in ", option, "=0.0.0.0:7421.")}});
  }
  return port == 0 ? address : absl::StrCat(address.substr(0, colon + 1), port + number);
}

}  // namespace cairn::cli
