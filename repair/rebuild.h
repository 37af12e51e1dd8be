// Makes a manifest from the headers of an attempt's bins alone.
#ifndef CAIRN_REPAIR_REBUILD_H_
#define CAIRN_REPAIR_REBUILD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "repair/bin_headers.h"

namespace cairn {

struct RebuiltManifest {
  Manifest manifest;
  // What the bins do not say, so that the manifest cannot say it either. One line for each, for people.
  std::vector<std::string> unknown;
};

// Pure. Proves that the bins are those of this attempt and complete: each says whose it is, their number is what they
// say, no item is in two of them, and the shards of every tensor tile it. Bins of earlier versions do not say whose
// they are, nor how many; then the tiling alone is proven, and `unknown` says what is not. The time of the commit is
// when the last bin was written. DATA_LOSS (FILE_MISSING): a bin is missing; (BAD_SAFETENSORS): one is of another
// attempt, or says another thing than the others. INVALID_ARGUMENT (SHARD_GAP, SHARD_OVERLAP, SHAPE_MISMATCH ...): the
// tiling, with all faults.
absl::StatusOr<RebuiltManifest> RebuildManifest(const BinHeaders& headers, const std::string& job, int64_t step,
                                                uint32_t attempt);

}  // namespace cairn

#endif  // CAIRN_REPAIR_REBUILD_H_
