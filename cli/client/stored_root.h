// Opens a root that a command reads itself, without a coordinator.
#ifndef CAIRN_CLI_CLIENT_STORED_ROOT_H_
#define CAIRN_CLI_CLIENT_STORED_ROOT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/status/status.h"
#include "store/posix/nested_root.h"
#include "store/posix/posix_storage.h"

namespace cairn::cli {

// Opens the root to read `job`. Fails as PosixStorage::Open and CheckJobOfRoot.
inline absl::StatusOr<std::unique_ptr<PosixStorage>> OpenRootOf(const std::string& job, const std::string& root) {
  CAIRN_ASSIGN_OR_RETURN(auto storage, PosixStorage::Open(root, false));
  CAIRN_RETURN_IF_ERROR(CheckJobOfRoot(root, job));
  return storage;
}

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CLIENT_STORED_ROOT_H_
