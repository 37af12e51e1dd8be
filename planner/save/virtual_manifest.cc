#include "planner/save/virtual_manifest.h"

#include <map>

namespace cairn {

Manifest VirtualManifest(const SavePlan& plan) {
  std::map<int, RankResult> results;
  for (const PlannedFileView& file : plan.Files()) {
    RankResult& result = results[file.rank];
    result.rank = file.rank;
    cairn::v1::FileResult& out = *result.result.add_files();
    out.set_file_bytes(file.header_bytes + file.data_bytes);
    for (const PlannedItem& item : file.items) {
      out.add_item_checksums(0);
      if (item.item.object) out.add_object_sizes(item.item.bytes());
    }
  }
  std::vector<RankResult> list;
  for (auto& [rank, result] : results) list.push_back(std::move(result));
  CommitInfo commit;
  commit.world_size = static_cast<uint32_t>(plan.ranks().size());
  // The results were made from the plan itself, so they fit it.
  return *plan.MakeManifest(list, commit);
}

}  // namespace cairn
