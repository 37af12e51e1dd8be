// How an agent shows that it sees the coordinator's storage below its own root: a random word that the coordinator puts
// there at each start, and the agent reads back to it.
#ifndef CAIRN_COMMON_STORAGE_ROOT_PROOF_H_
#define CAIRN_COMMON_STORAGE_ROOT_PROOF_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/file/posix.h"

namespace cairn {

// Puts a new word and returns it.
absl::StatusOr<std::string> PutRootProof(PosixStorage& storage);
// The word that stands there now. DATA_LOSS (FILE_MISSING), others of storage.
absl::StatusOr<std::string> ReadRootProof(PosixStorage& storage);

}  // namespace cairn

#endif  // CAIRN_COMMON_STORAGE_ROOT_PROOF_H_
