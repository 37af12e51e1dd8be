// Gives a committed checkpoint with a damaged verdict a manifest again.
#ifndef CAIRN_REPAIR_REPAIR_H_
#define CAIRN_REPAIR_REPAIR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/file/posix.h"
#include "common/format/manifest.h"
#include "common/storage/verify.h"

namespace cairn {

struct RepairOptions {
  // Set if a person knows that the step was committed, although nothing that is left proves it.
  bool assume_committed = false;
  VerifyOptions verify;
};

struct RepairReport {
  // False if the step is committed as it stands, so that nothing was done.
  bool repaired = false;
  Manifest manifest;
  // What the manifest cannot say any more, as lines for people.
  std::vector<std::string> unknown;
  // What reading the bins found. Its faults are the error's.
  VerifyReport verified;
};

// Repairs a step. It holds the root's lock meanwhile, so that no coordinator serves the root. The damaged verdict stays
// as it is; the manifest made of the bins is put beside it (RepairedPath), if every checksum of every byte agrees.
//
// A damaged tombstone may look like a damaged manifest, and the files of an aborted attempt may be complete. So what is
// left of the verdict must show that it was a manifest.
//
// The report is filled as far as the repair came. NOT_FOUND (NOT_COMMITTED): no verdict of the step is damaged.
// FAILED_PRECONDITION (ROOT_IN_USE): a coordinator serves the root; (COMMIT_UNPROVEN): without `assume_committed`;
// (FORMAT_TOO_NEW). CANCELLED (INTERRUPTED). Those of ReadBinHeaders and RebuildManifest. DATA_LOSS and the others of
// VerifyCheckpoint: the first fault. DATA_LOSS (MANIFEST_CORRUPT): an earlier repair's manifest is damaged itself.
absl::Status RepairCheckpoint(PosixStorage& storage, const std::string& job, int64_t step, const Clock& clock,
                              const RepairOptions& options, RepairReport& report);

}  // namespace cairn

#endif  // CAIRN_REPAIR_REPAIR_H_
