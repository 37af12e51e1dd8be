// Where every byte of a rank's bins lies: in the file and in the slab, which is the file image of all bins.
#ifndef CAIRN_AGENT_SESSION_SAVE_IMAGE_H_
#define CAIRN_AGENT_SESSION_SAVE_IMAGE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/session/rank_layout.h"
#include "cairn/v1/plan.pb.h"

namespace cairn {

// One file of the image. In the slab stand, from `slab_offset` (a multiple of 4096): the header, the data, and zeros
// up to the next multiple of 4096.
struct ImageFile {
  std::string name;
  uint64_t slab_offset = 0;
  uint64_t header_bytes = 0;
  uint64_t data_bytes = 0;
  // In the order of the file; indices into RankLayout::items.
  std::vector<uint32_t> item;

  uint64_t bytes() const { return header_bytes + data_bytes; }
};

// Immutable; all offsets and lengths in bytes.
struct SaveImage {
  std::string plan_digest;
  RankLayoutPtr layout;
  std::vector<ImageFile> file;
  // Of the whole image, a multiple of 4096; 0 if this rank writes nothing.
  uint64_t slab_bytes = 0;
  // Header and data of all files.
  uint64_t file_bytes = 0;
  // By item: where it lies in the slab, kNotStaged if it does not.
  std::vector<uint64_t> slab_offset;
  // Shards that this rank holds but does not write, which can be compared with what their writer wrote. Ascending.
  std::vector<uint32_t> replica;

  static constexpr uint64_t kNotStaged = UINT64_MAX;
};

using SaveImagePtr = std::shared_ptr<const SaveImage>;

// The image that `plan` asks for. The plan is checked: every number it gives must be the one that follows from the
// layout, so that a plan of another version cannot write a file that does not parse.
// FAILED_PRECONDITION or INTERNAL (LAYOUT_CHANGED, INTERNAL, UNSUPPORTED): the plan is for another layout, contradicts
// itself, or wants shards moved between ranks, which this version does not do. The layout's own fault.
absl::StatusOr<SaveImagePtr> MakeSaveImage(RankLayoutPtr layout, const v1::WritePlan& plan);

// The first item that `wanted` writes and `staged` has no bytes of; nothing if `staged` has all. Both must be of the
// same layout.
std::optional<uint32_t> FirstUnstaged(const SaveImage& staged, const SaveImage& wanted);

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_SAVE_IMAGE_H_
