#include "cli/commands/mirror_findings.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/shell_word.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/open/nesting.h"
#include "store/open/open_storage.h"
#include "store/open/place.h"
#include "store/posix/nested_root.h"

namespace cairn::cli {
namespace {

using Level = Finding::Level;

constexpr char kMirror[] = "mirror";
constexpr char kOwner[] = "mirror owner";
constexpr char kHolder[] = "mirror holder";

// The coordinator puts this file into a mirror. It has the name of the mirror's root in one line.
constexpr char kOwnerPath[] = ".cairn/mirror-of";
constexpr uint64_t kMaxOwnerBytes = 4096;
constexpr char kOwnDirectory[] = ".cairn";

constexpr char kAnotherPlace[] = "Give --mirror a place where nothing is, best in another storage.";

Finding FaultOf(const std::string& check, const absl::Status& status) {
  return {Level::kFault, check, std::string(status.message()), NextActionOf(status)};
}

std::string WithoutSlashes(std::string name) {
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  return name;
}

// Returns the full name of a root. Symbolic links in it are resolved if it is a directory.
std::string CanonicalName(const std::string& root) {
  if (!IsDirectoryRoot(root)) {
    const std::string name = root.substr(0, root.find('?'));
    return FullNameOf(name).value_or(name);
  }
  std::error_code error;
  const std::filesystem::path path = std::filesystem::weakly_canonical(std::filesystem::absolute(root), error);
  return error ? root : WithoutSlashes(path.string());
}

// Returns true if both are directories here, and the same one.
bool AreSameDirectory(const std::string& one, const std::string& other) {
  std::error_code error;
  return std::filesystem::equivalent(one, other, error) && !error;
}

// Says whose mirror a place is that has the file at kOwnerPath, with the text `owner`.
Finding JudgeOwner(const Storage& storage, const std::string& root, const std::string& owner) {
  const std::string& mirror = storage.root();
  const std::string name = owner.substr(0, owner.find('\n'));
  if (owner != absl::StrCat(name, "\n")) {
    return {Level::kFault, kOwner,
            absl::StrCat(storage.FullPath(kOwnerPath), " is not one line that ends with a newline"),
            "Put the name of the mirror's root and a newline there, and nothing else."};
  }
  if (root.empty()) {
    return {Level::kNote, kOwner, absl::StrCat(mirror, " is the mirror of ", name, ", and no root was given"),
            "Add --root ROOT, which is compared with that."};
  }
  if (name == WithoutSlashes(root) || name == CanonicalName(root)) {
    return {Level::kOk, kOwner, absl::StrCat(mirror, " is the mirror of ", root), ""};
  }
  if (AreSameDirectory(name, root)) {
    return {Level::kWarning, kOwner,
            absl::StrCat(mirror, " is the mirror of ", name, ", which is the same directory here as ", root),
            absl::StrCat("Start the coordinator with --root ", ForShell(name), ", because names are compared.")};
  }
  return {Level::kFault, kOwner, absl::StrCat(mirror, " is the mirror of ", name, " and not of ", root),
          absl::StrCat(kAnotherPlace, " Or, if this root took the other's place, make its name the only line of ",
                       storage.FullPath(kOwnerPath), ".")};
}

// Says whether the coordinator of `root` may mirror to this place. A fault: it refuses the place.
Finding FindOwner(Storage& storage, const std::string& root) {
  const absl::StatusOr<std::string> owner = storage.Read(kOwnerPath, kMaxOwnerBytes);
  if (owner.ok()) return JudgeOwner(storage, root, *owner);
  if (!HasReason(owner.status(), Reason::kFileMissing)) return FaultOf(kOwner, owner.status());
  const auto entries = storage.List("");
  if (!entries.ok() && !HasReason(entries.status(), Reason::kFileMissing)) return FaultOf(kOwner, entries.status());
  for (const Storage::Entry& entry : entries.value_or(std::vector<Storage::Entry>())) {
    if (entry.name == kOwnDirectory) continue;
    return {Level::kFault, kOwner,
            absl::StrCat(storage.root(), " is nobody's mirror, and has ", entry.name, ", which could be replaced"),
            kAnotherPlace};
  }
  return {Level::kOk, kOwner,
          absl::StrCat(storage.root(), " is empty, and the first coordinator that mirrors there makes it its own"), ""};
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
    const bool directories = IsDirectoryRoot(root) && IsDirectoryRoot(name);
    if (LieWithinEachOther(name, root) ||
        (directories && LieWithinEachOther(CanonicalName(name), CanonicalName(root)))) {
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
  const std::string name = WithoutSlashes(*full_name);
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
