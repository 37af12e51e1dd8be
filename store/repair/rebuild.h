// Makes a manifest from the headers of an attempt's bins alone, without the damaged one.
#ifndef CAIRN_STORE_REPAIR_REBUILD_H_
#define CAIRN_STORE_REPAIR_REBUILD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "store/repair/bin_headers.h"

namespace cairn {

struct RebuiltManifest {
  Manifest manifest;
  // The facts that the manifest lacks because the bins do not hold them: a line each, for people.
  std::vector<std::string> unknown;
};

// Makes the manifest from its arguments alone. It proves that the bins belong to this attempt and are complete: each
// bin names this attempt, there are as many bins as each one states, no item is in two of them, and the shards of every
// tensor tile it. Bins of earlier versions state neither their attempt nor the number of bins. Then only the tiling is
// proven, and `unknown` says what is not proven. The manifest's commit time is BinHeaders::written. DATA_LOSS
// (FILE_MISSING): a bin is missing; (BAD_SAFETENSORS): a bin belongs to another attempt, or contradicts the others.
// INVALID_ARGUMENT (SHARD_GAP, SHARD_OVERLAP, SHAPE_MISMATCH ...): the shards of a tensor do not tile it; the message
// lists all faults.
absl::StatusOr<RebuiltManifest> RebuildManifest(const BinHeaders& headers, const std::string& job, int64_t step,
                                                uint32_t attempt);

}  // namespace cairn

#endif  // CAIRN_STORE_REPAIR_REBUILD_H_
