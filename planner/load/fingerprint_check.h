// Compares what all ranks hold after a load with the fingerprints of the checkpoint.
#ifndef CAIRN_PLANNER_LOAD_FINGERPRINT_CHECK_H_
#define CAIRN_PLANNER_LOAD_FINGERPRINT_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "planner/layout/layout_set.h"
#include "planner/load/name_match.h"

namespace cairn {

// A tensor is compared if it is a whole stored tensor, perhaps under another name, and the ranks together hold each of
// its elements. Of one that a mapping makes otherwise (split, merged, transposed, cast), or that is not loaded whole,
// the manifest knows no fingerprint: only its replicas are compared.
//
// Immutable, and so thread-safe. Memory: that of the LayoutSet, and 13 bytes for each tensor.
class FingerprintCheck {
 public:
  // `source` must have summaries.
  FingerprintCheck(const Manifest& source, LayoutSet targets, const NameMatch& match);

  // `parts` has for each rank, in the order of the plan's ranks, the part of the fingerprint of each shard of its
  // layout, in the layout's order (TensorSummary::fingerprint_parts). Returns how many tensors are those of the
  // checkpoint. Takes O(shards of all ranks).
  // DATA_LOSS (FINGERPRINT_MISMATCH): some tensors are others; the message and the metadata "names", "count" and
  // "ranks" name them, and the ranks whose bytes are wrong, or, where that cannot be told, all that hold them.
  // INVALID_ARGUMENT (BAD_REQUEST): a rank has sent another number of parts than its layout has shards.
  absl::StatusOr<uint64_t> Compare(const std::vector<std::vector<uint64_t>>& parts) const;

 private:
  struct Found;
  // What is held in the place of each shard.
  struct Held;
  void Judge(uint32_t tensor, const Held& held, Found& found) const;

  const LayoutSet targets_;
  std::vector<bool> loaded_;                       // by tensor of the target: the load fills it
  std::vector<std::optional<uint64_t>> expected_;  // by the same: set if it is compared
};

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_FINGERPRINT_CHECK_H_
