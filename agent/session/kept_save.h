// Describes what the slab still holds of the last committed save: its files, byte for byte, as they stand in storage.
#ifndef CAIRN_AGENT_SESSION_KEPT_SAVE_H_
#define CAIRN_AGENT_SESSION_KEPT_SAVE_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "agent/session/save_image.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/plan.pb.h"

namespace cairn {

// Immutable, but it does not keep the slab as it is: RankSlab says when a reader may copy from the slab because nobody
// writes into it.
struct KeptSave {
  int64_t step = 0;
  uint32_t attempt = 0;
  // The plan by which the slab was staged and the files were written, and what the manifest says of them.
  SaveImagePtr image;
  v1::WriteResult result;
  // The slab, by its id.
  uint64_t slab = 0;

  // Returns where the file of a read plan begins in the slab; nothing if it is not one of these. A file is known by its
  // path, which has step, attempt and rank, by its lengths, and by its header's checksum in the manifest: the header
  // has the job, the position of each item and its checksum, so no other plan, attempt or content has the same.
  std::optional<uint64_t> OffsetOf(const v1::ReadFile& file) const;
  // True if the plan reads one of these files.
  bool IsReadBy(const v1::ReadPlan& plan) const;
};

using KeptSavePtr = std::shared_ptr<const KeptSave>;

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_KEPT_SAVE_H_
