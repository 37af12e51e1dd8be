#include "store/s3/s3_nested_root.h"

#include <deque>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr int kMaxDepth = 3;
constexpr size_t kMaxPrefixes = 300;

absl::StatusOr<bool> IsRoot(S3Client& client, const std::string& prefix) {
  CAIRN_ASSIGN_OR_RETURN(const auto epochs,
                         client.List(absl::StrCat(prefix, kS3Epochs), /*by_directory=*/false, "", 1));
  return !epochs.empty();
}

absl::Status Nested(S3Client& client, const char* where, const std::string& prefix) {
  const S3Address& address = client.address();
  const std::string other = address.NameOf(prefix);
  return MakeError(
      Reason::kBadRequest,
      absl::StrCat(address.NameOf(address.prefix), " cannot be a root of checkpoints, because it lies ", where,
                   " the root ", other, ": each would take the other's objects for its own"),
      {{"root", other},
       {"next", absl::StrCat("Give --root ", other, ", or a prefix that lies neither within it nor around it. If ",
                             other, " has become a root by mistake and holds no checkpoints, delete the objects below ",
                             other, ".cairn/.")}});
}

}  // namespace

absl::Status CheckNotWithin(S3Client& client) {
  const std::string& prefix = client.address().prefix;
  for (size_t slash = prefix.rfind('/'); slash != prefix.npos && slash > 0;) {
    slash = prefix.rfind('/', slash - 1);
    const std::string above = slash == prefix.npos ? "" : prefix.substr(0, slash + 1);
    CAIRN_ASSIGN_OR_RETURN(const bool root, IsRoot(client, above));
    if (root) return Nested(client, "within", above);
  }
  return absl::OkStatus();
}

absl::Status CheckNotAround(S3Client& client) {
  std::deque<std::pair<std::string, int>> open = {{client.address().prefix, 0}};  // with their depth below the root
  for (size_t seen = 0; !open.empty() && seen < kMaxPrefixes; ++seen) {
    const auto [prefix, depth] = std::move(open.front());
    open.pop_front();
    CAIRN_ASSIGN_OR_RETURN(const auto listed, client.List(prefix, /*by_directory=*/true));
    for (const S3Listed& one : listed) {
      if (!one.prefix) continue;
      const std::string name = one.name.substr(prefix.size(), one.name.size() - prefix.size() - 1);
      if (depth > 0 && name == ".cairn") return Nested(client, "around", prefix);
      // A step has the directories of its attempts, which hold bins only.
      if (depth < kMaxDepth && name != ".cairn" && !ParseStepName(name).has_value())
        open.emplace_back(one.name, depth + 1);
    }
  }
  return absl::OkStatus();
}

}  // namespace cairn
