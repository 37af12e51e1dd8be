// Says where every byte of a rank's bins lies: in the file and in the slab, which is the file image of all bins.
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

// One file of the image. The header, the data, and zeros up to the next multiple of 4096 stand in the slab from
// `slab_offset` on, which is a multiple of 4096 as well.
struct ImageFile {
  std::string name;
  uint64_t slab_offset = 0;
  uint64_t header_bytes = 0;
  uint64_t data_bytes = 0;
  // Numbers for SaveImage::ItemAt, in the order of the file.
  std::vector<uint32_t> item;

  uint64_t bytes() const { return header_bytes + data_bytes; }
};

// A shard that another rank holds and this one writes. It has its place in the file's image, but nothing is staged
// there: its bytes come from the other rank's slab while the file is written.
struct MovedIn {
  uint32_t from_rank = 0;
  uint32_t from_shard = 0;  // its number in the layout of that rank
  StoredItem item;
};

// A shard that this rank stages and another one writes.
struct MovedOut {
  uint32_t shard = 0;
  uint32_t to_rank = 0;
};

// Immutable; all offsets and lengths in bytes. The slab holds the files one after the other, then the shards that are
// moved out.
struct SaveImage {
  std::string plan_digest;
  RankLayoutPtr layout;
  uint32_t rank = 0;
  // Facts of the whole plan.
  uint32_t world_size = 0;
  uint32_t total_files = 0;
  std::vector<ImageFile> file;
  std::vector<MovedIn> moved_in;
  std::vector<MovedOut> moved_out;
  // The size of the whole image, a multiple of 4096; 0 if this rank stages nothing.
  uint64_t slab_bytes = 0;
  // Counts the headers and data of all files.
  uint64_t file_bytes = 0;
  // By item of the layout: where it lies in the slab, kNotStaged if it does not.
  std::vector<uint64_t> slab_offset;
  // This rank holds these shards but does not stage them. They are compared with what their writer wrote. They ascend.
  std::vector<uint32_t> replica;

  static constexpr uint64_t kNotStaged = UINT64_MAX;

  // Item `number` of a file: one of the layout, or behind those one that is moved in.
  bool IsMovedIn(uint32_t number) const { return number >= layout->items.size(); }
  const StoredItem& ItemAt(uint32_t number) const {
    return IsMovedIn(number) ? moved_in[number - layout->items.size()].item : layout->items[number];
  }
};

// The second names that a file tells: the rank's first one tells all that its layout declares.
const AliasList& AliasesIn(const SaveImage& image, size_t file);

using SaveImagePtr = std::shared_ptr<const SaveImage>;

// The image that `plan` asks for. The plan is checked: every number it gives must be the one that follows from the
// layout, so that a plan of another version cannot write a file that does not parse.
// FAILED_PRECONDITION or INTERNAL (LAYOUT_CHANGED, INTERNAL): the plan is for another layout, or contradicts itself.
// The layout's own fault.
absl::StatusOr<SaveImagePtr> MakeSaveImage(RankLayoutPtr layout, const v1::WritePlan& plan);

// The first item of the layout that `wanted` writes or moves out and `staged` has no bytes of; nothing if `staged` has
// all. Both must be of the same layout.
std::optional<uint32_t> FirstUnstaged(const SaveImage& staged, const SaveImage& wanted);

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_SAVE_IMAGE_H_
