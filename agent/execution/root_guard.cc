#include "agent/execution/root_guard.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/root/root_proof.h"

namespace cairn {

std::string RootGuard::ReadProof() {
  const auto changes = storage_.Refresh();
  // A root that is missing now may come back: until then there is no proof.
  if (!changes.ok()) return "";
  {
    MutexLock lock(mutex_);
    read_ = *changes;
  }
  return ReadRootProof(storage_).value_or("");
}

void RootGuard::Accepted(std::string proof) {
  MutexLock lock(mutex_);
  proof_ = std::move(proof);
  proven_ = read_;
}

absl::Status RootGuard::Check() {
  CAIRN_ASSIGN_OR_RETURN(const uint64_t changes, storage_.Refresh());
  std::string expected;
  {
    MutexLock lock(mutex_);
    if (changes == proven_) return absl::OkStatus();
    expected = proof_;
  }
  const auto proof = ReadRootProof(storage_);
  if (proof.ok() && *proof == expected) {
    MutexLock lock(mutex_);
    proven_ = changes;
    return absl::OkStatus();
  }
  register_again_();
  return MakeError(
      Reason::kRootMismatch,
      absl::StrCat("another file system stands at ", storage_.root(), " than at the last registration, and ",
                   proof.ok() ? "holds another .cairn/root-proof"
                              : absl::StrCat("has no .cairn/root-proof (", proof.status().message(), ")")),
      {{"root", storage_.root()}});
}

}  // namespace cairn
