#include "store/mirror/mirror_place.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/process/log.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr std::string_view kOwnDirectory = ".cairn";
constexpr uint64_t kMaxOwnerBytes = 4096;

}  // namespace

absl::StatusOr<std::shared_ptr<MirrorPlace::Side>> MirrorPlace::Opened() {
  MutexLock lock(open_mutex_);
  if (side_ == nullptr) {
    CAIRN_ASSIGN_OR_RETURN(auto storage, open_());
    side_ = std::make_shared<Side>(std::move(storage));
  }
  return side_;
}

absl::StatusOr<bool> MirrorPlace::BelongsTo(Storage& storage, const std::string& address, const std::string& root) {
  const auto other = [&](const std::string& what, const std::string& then) {
    return MakeError(Reason::kRootInUse, absl::StrCat(address, " is no mirror of ", root, ": ", what),
                     {{"root", address}, {"next", absl::StrCat("Give --mirror a place where nothing is. ", then)}});
  };
  const auto owner = storage.Read(kOwnerPath, kMaxOwnerBytes);
  // A person may have written it, with or without the end of the line.
  const std::string name(absl::StripAsciiWhitespace(owner.value_or("")));
  if (owner.ok() && name == root) return true;
  if (owner.ok()) {
    return other(absl::StrCat("it is that of ", name),
                 absl::StrCat("Or, if this root took the other's place, put its name, ", root, ", into ",
                              storage.FullPath(kOwnerPath), "."));
  }
  if (!HasReason(owner.status(), Reason::kFileMissing)) return owner.status();
  const auto entries = storage.List("");
  if (HasReason(entries.status(), Reason::kFileMissing)) return false;
  CAIRN_RETURN_IF_ERROR(entries.status());
  for (const Storage::Entry& entry : *entries) {
    if (entry.name != kOwnDirectory) {
      return other(absl::StrCat("nobody mirrored there yet, and it has ", entry.name),
                   "Checkpoints that stand there could be replaced.");
    }
  }
  return false;
}

absl::StatusOr<std::shared_ptr<MirrorPlace::Side>> MirrorPlace::ToRead() {
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<Side> side, Opened());
  CAIRN_RETURN_IF_ERROR(BelongsTo(*side->storage, address_, root_).status());
  return side;
}

std::shared_ptr<const MirrorPlace::Held> MirrorPlace::held() const {
  MutexLock lock(held_mutex_);
  return held_;
}

void MirrorPlace::Release() {
  std::shared_ptr<const Held> released;
  MutexLock lock(held_mutex_);
  released.swap(held_);
}

absl::StatusOr<std::shared_ptr<const MirrorPlace::Held>> MirrorPlace::Hold() {
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<const Held> taken, Take());
  MutexLock lock(held_mutex_);
  held_ = taken;
  return taken;
}

absl::StatusOr<std::shared_ptr<const MirrorPlace::Held>> MirrorPlace::Take() {
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<Side> side, Opened());
  Storage& storage = *side->storage;
  CAIRN_ASSIGN_OR_RETURN(const uint64_t refreshed, storage.Refresh());
  if (std::shared_ptr<const Held> standing = held(); standing != nullptr && standing->refreshed == refreshed) {
    const absl::Status checked = standing->lock->Check();
    if (checked.ok()) return standing;
    if (!HasReason(checked, Reason::kRootInUse)) return checked;
  }
  Release();
  CAIRN_ASSIGN_OR_RETURN(const bool belongs, BelongsTo(storage, address_, root_));
  auto held = std::make_shared<Held>();
  held->side = side;
  held->refreshed = refreshed;
  CAIRN_ASSIGN_OR_RETURN(held->lock, storage.TakeRoot());
  CAIRN_RETURN_IF_ERROR(storage.ProbeAtomicCreate());
  if (!belongs) CAIRN_RETURN_IF_ERROR(storage.PutIfAbsent(kOwnerPath, absl::StrCat(root_, "\n")).status());
  // Versions that know no deletions and lineages would misread what is copied.
  CAIRN_RETURN_IF_ERROR(held->lock->RaiseFormat());
  Log(LogLevel::kInfo, "mirror_held", {{"mirror", address_}, {"epoch", held->lock->epoch()}});
  return held;
}

}  // namespace cairn
