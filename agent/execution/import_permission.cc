#include "agent/execution/import_permission.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/format/full_name.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

bool IsBelow(std::string_view path, std::string_view root) {
  while (root.ends_with('/')) root.remove_suffix(1);
  return path.starts_with(root) && path.substr(root.size()).starts_with('/') &&
         path.find("/../") == std::string_view::npos;
}

}  // namespace

absl::Status CheckImports(const v1::ReadPlan& plan, uint32_t rank, bool serves_other_users,
                          const std::vector<std::string>& import_roots) {
  if (!serves_other_users) return absl::OkStatus();
  for (const v1::ReadFile& file : plan.files()) {
    if (!IsFullName(file.path())) continue;
    if (std::any_of(import_roots.begin(), import_roots.end(),
                    [&](const std::string& root) { return IsBelow(file.path(), root); })) {
      continue;
    }
    return MakeError(Reason::kPeerUid,
                     absl::StrCat("rank ", rank, ": its agent serves other users (--allow-uid), so it imports ",
                                  file.path(), " only if that is below an --import-root"),
                     {{"rank", absl::StrCat(rank)}, {"file", file.path()}});
  }
  return absl::OkStatus();
}

}  // namespace cairn
