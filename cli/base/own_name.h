// The host name of this machine. Launchers give it to their ranks as the address at which the ranks find each other.
#ifndef CAIRN_CLI_BASE_OWN_NAME_H_
#define CAIRN_CLI_BASE_OWN_NAME_H_

#include <string>

namespace cairn::cli {

struct OwnName {
  std::string name;
  bool has_address = false;
};
// Looks the name up. May block until the system's resolver times out.
OwnName LookUpOwnName();

// Returns the warning for a machine whose own name has no address, and the next action.
std::string TextOfNoAddress(const std::string& name);
std::string NextOfNoAddress(const std::string& name);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_BASE_OWN_NAME_H_
