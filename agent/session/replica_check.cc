#include "agent/session/replica_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/status/reason.h"

namespace cairn {

ReplicaChecklist MakeReplicaChecklist(const SaveImage& image, bool check_all, bool sample, uint32_t first) {
  ReplicaChecklist checklist;
  checklist.all = check_all || image.replica.empty();
  if (check_all) {
    checklist.must = image.replica;
  } else if (sample) {
    const auto begin = std::lower_bound(image.replica.begin(), image.replica.end(), first);
    checklist.may.assign(begin, image.replica.end());
    checklist.may.insert(checklist.may.end(), image.replica.begin(), begin);
    if (checklist.may.size() > kMostSampled) checklist.may.resize(kMostSampled);
  }
  const RankLayout& layout = *image.layout;
  for (size_t i = layout.shard_count; i < layout.items.size(); ++i) {
    if (!layout.items[i].object_rank) checklist.must.push_back(static_cast<uint32_t>(i));
  }
  return checklist;
}

absl::Status TakeReplicaChecksums(const ReplicaChecklist& checklist, const RankLayout& layout,
                                  const v1::CommitStagingRequest& request,
                                  std::vector<v1::ReplicaChecksum>& checksums) {
  const size_t checked = static_cast<size_t>(request.check_checksums_size());
  const size_t sampled = static_cast<size_t>(request.sampled_checksums_size());
  if (checked != checklist.must.size() || sampled > checklist.may.size()) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("checksums of ", checked, " and ", sampled, " replicas were given, ",
                                  checklist.must.size(), " and at most ", checklist.may.size(), " were asked for"));
  }
  checksums.clear();
  const auto add = [&](uint32_t item, uint32_t crc32c) {
    v1::ReplicaChecksum& checksum = checksums.emplace_back();
    checksum.set_item(item);
    checksum.set_crc32c(crc32c);
    if (item < layout.shard_count) return;
    // A slot is zero behind the object.
    const uint64_t bytes = request.object_sizes(static_cast<int>(item - layout.shard_count));
    checksum.set_crc32c(ExtendCrc32cByZeros(crc32c, static_cast<uint64_t>(layout.items[item].bytes()) - bytes));
    checksum.set_object_bytes(bytes);
  };
  for (size_t i = 0; i < checked; ++i) add(checklist.must[i], request.check_checksums(static_cast<int>(i)));
  for (size_t i = 0; i < sampled; ++i) add(checklist.may[i], request.sampled_checksums(static_cast<int>(i)));
  return absl::OkStatus();
}

}  // namespace cairn
