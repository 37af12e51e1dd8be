// Gives a committed checkpoint with a damaged outcome a manifest again.
#ifndef CAIRN_STORE_REPAIR_REPAIR_H_
#define CAIRN_STORE_REPAIR_REPAIR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/format/manifest.h"
#include "store/read/verify.h"
#include "store/storage/storage.h"

namespace cairn {

struct RepairOptions {
  // A person sets this who knows that the step was committed, although nothing that is left proves it.
  bool assume_committed = false;
  VerifyOptions verify;
};

struct RepairReport {
  // False if the manifest was valid, so that there was nothing to do.
  bool repaired = false;
  Manifest manifest;
  // Lists for people what the manifest cannot say any more.
  std::vector<std::string> unknown;
  // Says what reading the bins found. The error is made from its faults.
  VerifyReport verified;
};

// Repairs a step. The damaged outcome stays as it is. If every checksum of every byte agrees, the manifest that was
// made from the bins is put beside it (RepairedPath). Before it writes anything it takes the root's lock, so that no
// coordinator serves the root. If the manifest reads, only the files can be damaged, which no repair mends: it verifies
// them without the lock.
//
// A damaged abort record may look like a damaged manifest, and the files of an aborted attempt may be complete. So the
// rest of the outcome must show that it was a manifest.
//
// The report is filled as far as the repair came. NOT_FOUND (NOT_COMMITTED): the step was never committed.
// FAILED_PRECONDITION (ROOT_IN_USE): a coordinator serves the root; (COMMIT_UNPROVEN): nothing proves the commit and
// `assume_committed` is not set; (FORMAT_TOO_NEW). CANCELLED (INTERRUPTED). DATA_LOSS (MANIFEST_CORRUPT): the manifest
// of an earlier repair is itself damaged. Else the errors of ReadBinHeaders and RebuildManifest, or the first fault of
// VerifyCheckpoint.
absl::Status RepairCheckpoint(Storage& storage, const std::string& job, int64_t step, const Clock& clock,
                              const RepairOptions& options, RepairReport& report);

}  // namespace cairn

#endif  // CAIRN_STORE_REPAIR_REPAIR_H_
