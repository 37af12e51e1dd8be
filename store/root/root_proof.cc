#include "store/root/root_proof.h"

#include "common/base/random_id.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr char kPath[] = ".cairn/root-proof";
constexpr uint64_t kMaxBytes = 4096;

}  // namespace

absl::StatusOr<std::string> PutRootProof(Storage& storage) {
  CAIRN_RETURN_IF_ERROR(storage.MakeDirectories(".cairn"));
  const std::string proof = RandomToken();
  CAIRN_RETURN_IF_ERROR(storage.PutReplacing(kPath, proof));
  return proof;
}

absl::StatusOr<std::string> ReadRootProof(Storage& storage) { return storage.Read(kPath, kMaxBytes); }

}  // namespace cairn
