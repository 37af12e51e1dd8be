// The name of this machine, which launchers give to their ranks as the place where they meet.
#ifndef CAIRN_CLI_BASE_OWN_NAME_H_
#define CAIRN_CLI_BASE_OWN_NAME_H_

#include <string>

namespace cairn::cli {

struct OwnName {
  std::string name;
  bool has_address = false;
};
// Looks the name up, which may take as long as the system's resolver is patient.
OwnName LookUpOwnName();

// Returns what a person should hear of a machine whose own name has no address.
std::string TextOfNoAddress(const std::string& name);
std::string NextOfNoAddress(const std::string& name);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_BASE_OWN_NAME_H_
