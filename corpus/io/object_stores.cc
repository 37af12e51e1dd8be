#include "corpus/io/object_stores.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::corpus {
namespace {

ObjectStores* stores_of_process = nullptr;

}  // namespace

absl::StatusOr<std::unique_ptr<ObjectReader>> ObjectStores::Open(const std::string& name) {
  absl::StatusOr<std::unique_ptr<ObjectReader>> reader = OpenNow(name);
  if (HasReason(reader.status(), Reason::kFileMissing)) {
    return MakeError(Reason::kInputUnreadable, absl::StrCat("open ", name, ": there is no such object"),
                     {{"file", name}, {"next", "Correct the name; a listing of the bucket has those that stand."}});
  }
  CAIRN_RETURN_IF_ERROR(reader.status());
  const std::optional<Known> known = Recall(name);
  if (known.has_value() && known->identity != (*reader)->identity()) {
    return MakeError(Reason::kInputUnreadable, absl::StrCat(name, " was written anew since this command began"),
                     {{"file", name}, {"next", "Give the command again when nothing writes there."}});
  }
  if (!known.has_value()) Remember(name, {(*reader)->bytes(), (*reader)->identity()});
  return reader;
}

void ObjectStores::Remember(const std::string& name, Known known) {
  MutexLock lock(mutex_);
  known_.insert_or_assign(name, std::move(known));
}

std::optional<ObjectStores::Known> ObjectStores::Recall(const std::string& name) const {
  MutexLock lock(mutex_);
  const auto found = known_.find(name);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void UseObjectStores(ObjectStores* stores) { stores_of_process = stores; }

ObjectStores* StoresOf(std::string_view name) {
  return stores_of_process != nullptr && stores_of_process->Has(name) ? stores_of_process : nullptr;
}

absl::Status CheckIsLocal(std::string_view what, const std::string& name, std::string_view why) {
  const ObjectStores* const stores = StoresOf(name);
  if (stores == nullptr) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(stores->NameOf(name).status());
  return MakeError(Reason::kUnsupported,
                   absl::StrCat(std::string(what), " ", name, " is in an object store, but ", std::string(why)),
                   {{"file", name}, {"next", absl::StrCat("Give ", std::string(what), " a path of this machine.")}});
}

}  // namespace cairn::corpus
