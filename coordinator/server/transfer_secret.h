// The secret of the root from which the tokens for moves between agents are made.
#ifndef CAIRN_COORDINATOR_SERVER_TRANSFER_SECRET_H_
#define CAIRN_COORDINATOR_SERVER_TRANSFER_SECRET_H_

#include <string>

#include "absl/status/statusor.h"
#include "store/storage/storage.h"

namespace cairn {

// The secret stands in `<root>/.cairn/transfer.secret`, and only its owner can read it. The first coordinator makes it.
// So a restarted coordinator gives the agents of a save or load in flight the token that some of them have already.
// Immutable; thread-safe.
class TransferSecret {
 public:
  // Reads it, or makes it. It has the errors of storage; DATA_LOSS (FILE_TRUNCATED): the file holds no secret.
  static absl::StatusOr<TransferSecret> Load(Storage& storage);

  // The token by which an agent shows that it takes part in a save with this plan.
  std::string TokenFor(const std::string& plan_digest) const;
  // The same for a load or reshard; `calls_digest` is that of PlanLoad. Loads by one plan have different tokens, so
  // that an agent that is in one of them gives nothing to another.
  std::string TokenForLoad(const std::string& plan_digest, const std::string& calls_digest) const;

 private:
  explicit TransferSecret(std::string secret) : secret_(std::move(secret)) {}
  std::string secret_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_TRANSFER_SECRET_H_
