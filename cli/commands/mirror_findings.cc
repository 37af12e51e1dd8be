#include "cli/commands/mirror_findings.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/mirror/mirror_place.h"
#include "store/open/open_storage.h"
#include "store/open/place.h"
#include "store/posix/nested_root.h"

namespace cairn::cli {
namespace {

using Level = Finding::Level;

constexpr char kMirror[] = "mirror";
constexpr char kOwner[] = "mirror owner";
constexpr char kHolder[] = "mirror holder";

Finding FaultOf(const std::string& check, const absl::Status& status) {
  return {Level::kFault, check, std::string(status.message()), NextActionOf(status)};
}

// Says whether the coordinator of `root` may mirror to this place. A fault: it refuses the place.
Finding FindOwner(Storage& storage, const std::string& root) {
  if (root.empty()) return {Level::kNote, kOwner, "not compared, because no root was given", "Add --root ROOT."};
  const auto belongs = MirrorPlace::BelongsTo(storage, storage.root(), CanonicalNameOf(root));
  if (!belongs.ok()) return FaultOf(kOwner, belongs.status());
  return {Level::kOk, kOwner,
          *belongs ? absl::StrCat(storage.root(), " is the mirror of ", root)
                   : absl::StrCat(storage.root(),
                                  " is empty, and the first coordinator that mirrors there makes it its own"),
          ""};
}

// Says which process holds the mirror, and whether that can be the root's coordinator.
Finding FindHolder(Storage& storage, const std::string& root, Storage* open_root) {
  const auto holder = storage.HolderOfRoot();
  if (!holder.ok()) return FaultOf(kHolder, holder.status());
  if (!holder->has_value()) return {Level::kNote, kHolder, "no process holds it, so nothing is copied now", ""};
  const RootHolder& who = **holder;
  if (!who.address.empty()) {  // the holder of a mirror does not say where it serves
    return {Level::kFault, kHolder,
            absl::StrCat(who.text, " serves it as a root at ", who.address, ", so nothing can be copied there"),
            "End that coordinator, or give --mirror another place."};
  }
  const std::string holds = absl::StrCat(who.text, " holds it");
  if (open_root == nullptr) return {Level::kOk, kHolder, holds, ""};
  const auto roots = open_root->HolderOfRoot();
  if (!roots.ok()) return FaultOf(kHolder, roots.status());
  if (roots->has_value() && (*roots)->host == who.host) return {Level::kOk, kHolder, holds, ""};
  return {
      Level::kWarning, kHolder,
      absl::StrCat(holds, ", and ", roots->has_value() ? (*roots)->text : "no process", " holds the root ", root),
      absl::StrCat("If ", who.text, " is not a coordinator of this root, end it: no other one can copy meanwhile.")};
}

// Tells of a fault that makes the place useless as a mirror before it is opened; nothing if there is none.
std::optional<Finding> FindWrongPlace(const std::string& name, const std::string& root) {
  if (!root.empty()) {
    if (LieWithinEachOther(name, CanonicalNameOf(root))) {
      return Finding{Level::kFault, kMirror,
                     absl::StrCat("the mirror ", name, " and the root ", root, " lie within each other"),
                     "Give the mirror a place outside of the root, best in another storage."};
    }
  }
  if (!IsDirectoryRoot(name)) return std::nullopt;
  if (const absl::Status alone = CheckStandsAlone(name); !alone.ok()) return FaultOf(kMirror, alone);
  std::error_code error;
  if (std::filesystem::exists(name, error) || error) return std::nullopt;
  return Finding{Level::kWarning, kMirror, absl::StrCat("there is no directory ", name, "; the coordinator makes it"),
                 "If it should be on another storage, mount that first."};
}

}  // namespace

std::vector<Finding> ExamineMirror(const std::string& mirror, const std::string& root, Storage* open_root,
                                   uint64_t state) {
  const absl::StatusOr<std::string> full_name = FullNameOf(mirror);
  if (!full_name.ok()) return {FaultOf(kMirror, full_name.status())};
  const std::string name = CanonicalNameOf(*full_name);
  if (auto wrong = FindWrongPlace(name, root)) return {*std::move(wrong)};
  // A mirror in an object store is made by its first object.
  const auto storage = OpenStorage(name, /*create=*/!IsDirectoryRoot(name));
  if (!storage.ok()) return {FaultOf(kMirror, storage.status())};

  std::vector<Finding> findings = {FindOwner(**storage, root)};
  const bool refused = findings.front().level == Level::kFault;
  // Whoever holds another root's mirror may do so.
  findings.push_back(FindHolder(**storage, root, refused ? nullptr : open_root));
  if (refused) return findings;
  Finding probe = JudgeRoot(name, (*storage)->ProbeAtomicCreate());
  probe.check = kMirror;
  const bool usable = probe.level != Level::kFault;
  findings.insert(findings.begin(), std::move(probe));
  if (!usable) return findings;
  for (Finding& fact : JudgeFacts((*storage)->Facts(), state, Clock::Real().WallNow())) {
    if (fact.check == "free space" && !fact.next.empty()) {
      fact.next = "Make room there, or keep fewer copies: the coordinator's --mirror-keep-last.";
    }
    fact.check = absl::StrCat("mirror ", fact.check);
    findings.push_back(std::move(fact));
  }
  return findings;
}

}  // namespace cairn::cli
