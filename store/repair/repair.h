// Makes a new manifest for a committed checkpoint whose outcome is damaged.
#ifndef CAIRN_STORE_REPAIR_REPAIR_H_
#define CAIRN_STORE_REPAIR_REPAIR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/format/manifest.h"
#include "store/read/verify.h"
#include "store/storage/storage.h"

namespace cairn {

struct RepairOptions {
  // True: a person knows that the step was committed, so the repair does not need a proof of it.
  bool assume_committed = false;
  VerifyOptions verify;
};

struct RepairReport {
  // False if the manifest was valid, so that there was nothing to do.
  bool repaired = false;
  Manifest manifest;
  // See RebuiltManifest::unknown.
  std::vector<std::string> unknown;
  // The result of reading the bins. If it has faults, the first one becomes the error of RepairCheckpoint.
  VerifyReport verified;
};

// Repairs a step: makes a manifest from the bins and, if all checksums of their bytes agree, puts it beside the damaged
// outcome (RepairedPath). The damaged outcome stays as it is. While it writes it holds the root's lock, so that no
// coordinator serves the root. If the manifest can be read, only the files can be damaged, and no repair can mend
// those. Then it only verifies the files, without the lock.
//
// A damaged abort record may look like a damaged manifest, and the files of an aborted attempt may be complete. So what
// is left of the outcome must show that it was a manifest.
//
// The report is filled as far as the repair came. NOT_FOUND (NOT_COMMITTED): the step was never committed.
// FAILED_PRECONDITION (ROOT_IN_USE): a coordinator serves the root; (COMMIT_UNPROVEN): nothing proves the commit and
// `assume_committed` is not set; (FORMAT_TOO_NEW). CANCELLED (INTERRUPTED). DATA_LOSS (MANIFEST_CORRUPT): the manifest
// of an earlier repair is itself damaged. Else the errors of ReadBinHeaders and RebuildManifest, or the first fault of
// VerifyCheckpoint.
absl::Status RepairCheckpoint(Storage& storage, const std::string& job, int64_t step, const RepairOptions& options,
                              RepairReport& report);

}  // namespace cairn

#endif  // CAIRN_STORE_REPAIR_REPAIR_H_
