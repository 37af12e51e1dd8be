#include "cli/corpus/placed_objects.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/base/interrupt.h"
#include "common/base/clock.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/open/open_storage.h"
#include "store/storage/storage.h"
#include "store/storage/upload.h"

namespace cairn::cli {
namespace {

// No command writes for so long, so an older upload was left by a process that was killed.
constexpr absl::Duration kUploadOfRun = absl::Hours(24);
// Names are removed in their order, so many at a time.
constexpr size_t kNamesAtOnce = 500;

// Once a person has stopped the command, that is why requests fail.
absl::Status Told(absl::Status status) {
  if (status.ok() || !InterruptFlag().load()) return status;
  return MakeError(Reason::kInterrupted, "interrupted");
}

class Reader : public corpus::ObjectReader {
 public:
  explicit Reader(std::unique_ptr<StoredFile> file) : file_(std::move(file)) {}
  uint64_t bytes() const override { return file_->bytes(); }
  const std::string& identity() const override { return file_->identity(); }
  absl::Status Read(uint64_t offset, uint64_t size, char* to) override {
    if (InterruptFlag().load()) return MakeError(Reason::kInterrupted, "interrupted");
    absl::Status status = Told(file_->Read(offset, size, to));
    if (!HasReason(status, Reason::kBadForeignFile) && !HasReason(status, Reason::kFileTruncated) &&
        !HasReason(status, Reason::kFileMissing)) {
      return status;
    }
    return MakeError(Reason::kInputUnreadable,
                     absl::StrCat(file_->path(), " was written anew or removed while it was read"),
                     {{"file", file_->path()}, {"next", "Give the command again when nothing writes there."}});
  }

 private:
  const std::unique_ptr<StoredFile> file_;
};

class Writer : public corpus::ObjectWriter {
 public:
  explicit Writer(std::unique_ptr<Upload> upload) : upload_(std::move(upload)) {}
  uint64_t PartBytes(int number) const override { return upload_->PartBytes(number); }
  absl::Status Send(int number, std::string_view bytes) override {
    if (InterruptFlag().load()) return MakeError(Reason::kInterrupted, "interrupted");
    return Told(upload_->Send(number, bytes));
  }
  absl::Status Complete() override { return upload_->Finish(); }
  // What cannot be removed is told nowhere: the error that ended the command is told already.
  void Abort() override { upload_->Abort().IgnoreError(); }

 private:
  const std::unique_ptr<Upload> upload_;
};

absl::StatusOr<Place> PlaceOf(const corpus::ObjectStores& stores, const std::string& name) {
  CAIRN_ASSIGN_OR_RETURN(const std::string full_name, stores.NameOf(name));
  return FindPlace(full_name);
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? "" : path.substr(0, slash);
}

}  // namespace

bool PlacedObjects::Has(std::string_view name) const { return !IsDirectoryRoot(name); }

absl::StatusOr<std::string> PlacedObjects::NameOf(std::string_view text) const { return FullNameOf(text); }

absl::StatusOr<std::vector<PlacedObjects::Entry>> PlacedObjects::List(const std::string& directory) {
  CAIRN_ASSIGN_OR_RETURN(const Place place, PlaceOf(*this, directory));
  auto listed = place.storage->List(place.path);
  if (HasReason(listed.status(), Reason::kFileMissing)) return std::vector<Entry>();
  CAIRN_RETURN_IF_ERROR(Told(listed.status()));
  std::vector<std::string> names;
  for (const Storage::Entry& entry : *listed) {
    if (!entry.directory && !entry.unfinished) names.push_back(entry.name);
  }
  std::vector<std::optional<uint64_t>> sizes;
  if (!names.empty()) {
    auto found = place.storage->SizesOf(place.path, names);
    CAIRN_RETURN_IF_ERROR(Told(found.status()));
    sizes = *std::move(found);
  }
  std::vector<Entry> entries;
  size_t file = 0;
  for (Storage::Entry& entry : *listed) {
    if (entry.unfinished) continue;
    Entry one{std::move(entry.name), 0, std::move(entry.identity), entry.directory};
    if (!one.directory) {
      const std::optional<uint64_t>& bytes = sizes[file++];
      if (!bytes.has_value()) continue;  // it was removed meanwhile
      one.bytes = *bytes;
    }
    entries.push_back(std::move(one));
  }
  return entries;
}

bool PlacedObjects::Stands(const std::string& name) {
  const auto place = PlaceOf(*this, name);
  return place.ok() && place->storage->Exists(place->path);
}

absl::StatusOr<std::unique_ptr<corpus::ObjectReader>> PlacedObjects::OpenNow(const std::string& name) {
  CAIRN_ASSIGN_OR_RETURN(const std::string full_name, NameOf(name));
  auto file = OpenAnywhere(full_name, {.stop = &InterruptFlag()});
  CAIRN_RETURN_IF_ERROR(Told(file.status()));
  return std::make_unique<Reader>(*std::move(file));
}

void PlacedObjects::RemoveLeft(const Place& place, const std::string& directory) {
  {
    MutexLock lock(mutex_);
    if (!cleaned_.insert(place.storage->FullPath(directory)).second) return;
  }
  place.storage->RemoveUnfinished({directory}, Clock::Real().WallNow() - kUploadOfRun).IgnoreError();
}

absl::StatusOr<std::unique_ptr<corpus::ObjectWriter>> PlacedObjects::Create(const std::string& name) {
  CAIRN_ASSIGN_OR_RETURN(const std::string full_name, NameOf(name));
  CAIRN_ASSIGN_OR_RETURN(const Place place, FindPlace(full_name));
  RemoveLeft(place, DirectoryOf(place.path));  // first, because some stores tell no true time of an upload
  CAIRN_ASSIGN_OR_RETURN(auto upload, NewUploadTo(full_name));
  upload->StopWhen(InterruptFlag());
  CAIRN_RETURN_IF_ERROR(Told(upload->Begin()));
  return std::make_unique<Writer>(std::move(upload));
}

absl::Status PlacedObjects::Remove(const std::vector<std::string>& names) {
  for (size_t begin = 0; begin < names.size();) {
    CAIRN_ASSIGN_OR_RETURN(const Place first, PlaceOf(*this, names[begin]));
    const std::string directory = DirectoryOf(first.path);
    std::vector<std::string> own;  // the names that follow in the same directory
    size_t end = begin;
    for (; end < names.size() && own.size() < kNamesAtOnce; ++end) {
      CAIRN_ASSIGN_OR_RETURN(const Place place, PlaceOf(*this, names[end]));
      if (place.storage != first.storage || DirectoryOf(place.path) != directory) break;
      own.push_back(directory.empty() ? place.path : place.path.substr(directory.size() + 1));
    }
    begin = end;
    auto listed = first.storage->List(directory);
    if (HasReason(listed.status(), Reason::kFileMissing)) continue;
    CAIRN_RETURN_IF_ERROR(Told(listed.status()));
    bool stands = false;
    for (const Storage::Entry& entry : *listed) {
      if (std::find(own.begin(), own.end(), entry.name) == own.end()) continue;
      stands = true;
      if (!entry.directory) continue;  // else all below it would go too
      const std::string path =
          first.storage->FullPath(directory.empty() ? entry.name : absl::StrCat(directory, "/", entry.name));
      return MakeError(Reason::kBadRequest,
                       absl::StrCat("replace ", path, ": other objects are below it, as if it were a directory"),
                       {{"file", path}, {"next", "Give the output another name."}});
    }
    if (stands) CAIRN_RETURN_IF_ERROR(first.storage->RemoveAllOf(directory, own));
  }
  return absl::OkStatus();
}

}  // namespace cairn::cli
