// A secret of the root, from which the tokens of moves between agents are made.
#ifndef CAIRN_COORDINATOR_SERVER_TRANSFER_SECRET_H_
#define CAIRN_COORDINATOR_SERVER_TRANSFER_SECRET_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/file/posix.h"

namespace cairn {

// Stands in `<root>/.cairn/transfer.secret`, readable by its owner alone, and is made by the first coordinator: so a
// restarted one gives the agents of a save in flight the token that they have already. Immutable; thread-safe.
class TransferSecret {
 public:
  // Reads it, or makes it. The errors of storage; DATA_LOSS (FILE_TRUNCATED): what stands there is no secret.
  static absl::StatusOr<TransferSecret> Load(PosixStorage& storage);

  // What shows that an agent takes part in a save by this plan.
  std::string TokenFor(const std::string& plan_digest) const;

 private:
  explicit TransferSecret(std::string secret) : secret_(std::move(secret)) {}
  std::string secret_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_TRANSFER_SECRET_H_
