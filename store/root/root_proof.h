// Lets an agent prove that it sees the same storage below its root as the coordinator. At each start the coordinator
// puts a random word below the root. The agent reads the word and sends it to the coordinator.
#ifndef CAIRN_STORE_ROOT_ROOT_PROOF_H_
#define CAIRN_STORE_ROOT_ROOT_PROOF_H_

#include <string>

#include "absl/status/statusor.h"
#include "store/storage/storage.h"

namespace cairn {

absl::StatusOr<std::string> PutRootProof(Storage& storage);
// Returns the present word. DATA_LOSS (FILE_MISSING): there is none. Else the errors of storage.
absl::StatusOr<std::string> ReadRootProof(Storage& storage);

}  // namespace cairn

#endif  // CAIRN_STORE_ROOT_ROOT_PROOF_H_
