#include "common/process/address_file.h"

#include "absl/strings/str_cat.h"
#include "common/file/atomic_write.h"
#include "common/file/file_advice.h"
#include "common/status/reason.h"

namespace cairn {

absl::Status WriteAddressFile(const std::string& path, const std::string& address) {
  const absl::Status status =
      WriteAtomically(path, address + "\n", {.replace = true, .durable = AtomicWriteOptions::Durable::kNothing})
          .put.status();
  // FILE_MISSING is only for files of checkpoints, so a missing directory gets another reason.
  if (!HasReason(status, Reason::kFileMissing)) return WithNextWithoutFile(status, path, "--address-file");
  return MakeError(
      Reason::kBadRequest, absl::StrCat("the address file cannot be made: ", status.message()),
      {{"file", path}, {"next", absl::StrCat("Make the directory above ", path, ", or give another path.")}});
}

}  // namespace cairn
