#include "store/mirror/mirror_place.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/process/log.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/write/attempt_store.h"

namespace cairn {
namespace {

constexpr std::string_view kOwnDirectory = ".cairn";
constexpr std::string_view kMadeDirectory = ".cairn/mirrors";
constexpr uint64_t kMaxOwnerBytes = 4096;
constexpr size_t kNameBytes = 8;

}  // namespace

std::string MirrorPlace::MadePath(const std::string& address) {
  const std::string digest = Digest(address).substr(0, kNameBytes);
  return absl::StrCat(std::string(kMadeDirectory), "/", absl::BytesToHexString(digest));
}

absl::StatusOr<bool> MirrorPlace::WasMade() {
  if (made_) return true;
  const auto noted = root_storage_.Read(MadePath(address_), kMaxOwnerBytes);
  if (HasReason(noted.status(), Reason::kFileMissing)) return false;
  CAIRN_RETURN_IF_ERROR(noted.status());
  made_ = true;
  return true;
}

absl::Status MirrorPlace::NoteMade() {
  if (made_) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(root_storage_.MakeDirectories(kMadeDirectory));
  CAIRN_RETURN_IF_ERROR(root_storage_.PutIfAbsent(MadePath(address_), absl::StrCat(address_, "\n")).status());
  made_ = true;
  return absl::OkStatus();
}

absl::StatusOr<bool> MirrorPlace::IsOurs(Storage& storage) {
  CAIRN_ASSIGN_OR_RETURN(const bool belongs, BelongsTo(storage, address_, root_));
  if (belongs) return true;
  CAIRN_ASSIGN_OR_RETURN(const bool was_made, WasMade());
  if (!was_made) return false;
  return MakeError(Reason::kRootMissing, absl::StrCat(address_, " is empty, and was this root's mirror before"),
                   {{"root", address_},
                    {"next", absl::StrCat("See whether it is mounted. If its copies are lost for good, remove ",
                                          root_storage_.FullPath(MadePath(address_)),
                                          ", start the coordinator again, and it makes the mirror anew.")}});
}

absl::StatusOr<std::unique_ptr<Storage>> MirrorPlace::OpenOnce() {
  CAIRN_ASSIGN_OR_RETURN(const bool was_made, WasMade());
  return open_(/*create=*/!was_made);
}

absl::StatusOr<std::shared_ptr<MirrorPlace::Side>> MirrorPlace::Opened() {
  MutexLock lock(open_mutex_);
  if (side_ == nullptr) {
    CAIRN_ASSIGN_OR_RETURN(auto storage, OpenOnce());
    side_ = std::make_shared<Side>(std::move(storage));
  }
  return side_;
}

absl::StatusOr<std::shared_ptr<MirrorPlace::Side>> MirrorPlace::OpenedNow() {
  {
    MutexLock lock(open_mutex_);
    const bool is_first = watch_ == nullptr;
    if (is_first) {
      CAIRN_ASSIGN_OR_RETURN(watch_, OpenOnce());
    }
    CAIRN_ASSIGN_OR_RETURN(const uint64_t refreshed, watch_->Refresh());
    if (is_first || refreshed != refreshed_) side_ = nullptr;
    refreshed_ = refreshed;
  }
  return Opened();
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
  CAIRN_RETURN_IF_ERROR(IsOurs(*side->storage).status());
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
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<Side> side, OpenedNow());
  Storage& storage = *side->storage;
  if (std::shared_ptr<const Held> standing = held(); standing != nullptr && standing->side == side) {
    const absl::Status checked = standing->lock->Check();
    if (checked.ok()) return standing;
    if (!HasReason(checked, Reason::kRootInUse)) return checked;
  }
  Release();
  CAIRN_ASSIGN_OR_RETURN(const bool belongs, IsOurs(storage));
  auto held = std::make_shared<Held>();
  held->side = side;
  auto lock = storage.TakeRoot();
  if (HasReason(lock.status(), Reason::kRootInUse)) {
    const std::string next = absl::StrCat("Stop the other coordinator that uses ", address_,
                                          " (kill it if it is frozen), or give this one another --mirror.");
    return Annotate(lock.status(), "it is in use", {{"next", next}});
  }
  CAIRN_RETURN_IF_ERROR(lock.status());
  held->lock = *std::move(lock);
  absl::Status creates = storage.ProbeAtomicCreate();
  if (HasReason(creates, Reason::kNoSpace)) {
    // Deletions there make room.
    AttemptStore::ReleaseReserve(storage);
    creates = storage.ProbeAtomicCreate();
  }
  CAIRN_RETURN_IF_ERROR(creates);
  if (!belongs) {
    CAIRN_RETURN_IF_ERROR(storage.PutIfAbsent(kOwnerPath, absl::StrCat(root_, "\n")).status());
    Log(LogLevel::kWarn, "mirror_made",
        {{"mirror", address_},
         {"next",
          "Nothing was there before. If copies should be there, stop the coordinator, and mount the mirror or correct "
          "--mirror."}});
  }
  CAIRN_RETURN_IF_ERROR(NoteMade());
  AttemptStore::KeepReserve(storage);
  // Versions that know no deletions and lineages would misread what is copied.
  CAIRN_RETURN_IF_ERROR(held->lock->RaiseFormat());
  Log(LogLevel::kInfo, "mirror_held", {{"mirror", address_}, {"epoch", held->lock->epoch()}});
  return held;
}

}  // namespace cairn
