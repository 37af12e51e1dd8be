#include "planner/load/load_wish.h"

#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "cairn/v1/layout.pb.h"
#include "common/format/wire.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "mapping/json.h"

namespace cairn {
namespace {

struct Wanted {
  std::string_view mapping;
  std::string_view directory;
  bool operator==(const Wanted&) const = default;
};

Wanted Read(std::string_view layout) {
  Wanted wanted;
  WireReader reader(layout);
  while (const uint32_t field = reader.NextField()) {
    if (field == v1::Layout::kMappingFieldNumber && reader.is_bytes()) wanted.mapping = reader.bytes();
    if (field == v1::Layout::kImportDirectoryFieldNumber && reader.is_bytes()) wanted.directory = reader.bytes();
  }
  return wanted;
}

}  // namespace

absl::StatusOr<LoadWish> ReadLoadWish(std::span<const RankInput> targets) {
  LoadWish wish;
  if (targets.empty()) return wish;
  const Wanted first = Read(targets.front().layout);
  absl::flat_hash_set<std::string_view> seen;
  for (const RankInput& target : targets) {
    if (!seen.insert(target.layout_digest).second) continue;
    const Wanted other = Read(target.layout);
    if (other == first) continue;
    const bool mapping = other.mapping != first.mapping;
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("ranks do not load the same: rank ", targets.front().rank, " and rank ", target.rank,
                                  mapping ? " give different mappings" : " import different directories"),
                     {{"ranks", absl::StrCat(targets.front().rank, ", ", target.rank)}});
  }
  wish.import_directory = std::string(first.directory);
  if (!first.mapping.empty()) {
    CAIRN_ASSIGN_OR_RETURN(aoa::Config config, aoa::ParseConfig(first.mapping));
    wish.mapping = std::make_shared<const aoa::Config>(std::move(config));
  }
  return wish;
}

}  // namespace cairn
