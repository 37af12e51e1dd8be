#include "store/s3/s3_storage.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/file/confined_path.h"
#include "common/file/secret_file.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/s3/s3_address.h"
#include "store/s3/s3_directory_lists.h"
#include "store/s3/s3_file.h"
#include "store/s3/s3_file_writer.h"
#include "store/s3/s3_root_lock.h"
#include "store/s3/s3_upload.h"

namespace cairn {
namespace {

// No save lasts so long, so an older upload was left by a process that is gone.
constexpr absl::Duration kUploadOfSave = absl::Hours(24);

// Enough for one request that lists small directories.
constexpr size_t kDirectoriesInRange = 128;

}  // namespace

absl::StatusOr<std::unique_ptr<S3Storage>> S3Storage::Open(const std::string& root, bool create, const Clock& clock,
                                                           const Options& options) {
  CAIRN_ASSIGN_OR_RETURN(const S3Address address, ParseS3Root(root, FromEnvironment));
  CAIRN_ASSIGN_OR_RETURN(auto client, S3Client::Open(address, clock, options));
  std::string name = address.NameOf(address.prefix);
  name.pop_back();
  CAIRN_ASSIGN_OR_RETURN(const auto listed, client->List(address.prefix, /*by_directory=*/false, "", 1));
  if (listed.empty() && !create) {
    return MakeError(Reason::kRootMissing, absl::StrCat("nothing was ever saved below ", name),
                     {{"root", name}, {"next", "Check the bucket and the prefix; a coordinator makes a new root."}});
  }
  return std::unique_ptr<S3Storage>(new S3Storage(std::move(name), std::move(client)));
}

absl::StatusOr<std::unique_ptr<S3Storage>> S3Storage::OpenBucket(const std::string& name, const Clock& clock,
                                                                 const Options& options) {
  CAIRN_ASSIGN_OR_RETURN(const S3Address address, ParseS3Root(name, FromEnvironment));
  if (address.NameOf("") != absl::StrCat(name, "/")) {  // options behind a "?" would make it another store
    return MakeError(Reason::kBadRequest, absl::StrCat(name, " is no name of a bucket"), {{"root", name}});
  }
  CAIRN_ASSIGN_OR_RETURN(auto client, S3Client::Open(address, clock, options));
  return std::unique_ptr<S3Storage>(new S3Storage(name, std::move(client)));
}

absl::StatusOr<std::string> S3Storage::KeyOf(std::string_view path) const {
  CAIRN_RETURN_IF_ERROR(ConfinedComponents(path).status());
  return absl::StrCat(client_->address().prefix, std::string(path));
}

absl::StatusOr<std::string> S3Storage::PrefixOf(std::string_view directory) const {
  if (directory.empty()) return client_->address().prefix;
  CAIRN_ASSIGN_OR_RETURN(const std::string key, KeyOf(directory));
  return absl::StrCat(key, "/");
}

absl::StatusOr<std::unique_ptr<StoredFile>> S3Storage::Open(std::string_view path, const OpenOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(std::string key, KeyOf(path));
  return S3File::Open(*client_, std::move(key), FullPath(path), options);
}

absl::StatusOr<Storage::Content> S3Storage::ReadContent(std::string_view path, uint64_t max_bytes, Cache) {
  CAIRN_ASSIGN_OR_RETURN(const std::string key, KeyOf(path));
  CAIRN_ASSIGN_OR_RETURN(S3Content content, client_->Fetch(key, max_bytes));
  return Content{std::move(content.bytes), std::move(content.object.etag)};
}

bool S3Storage::Exists(std::string_view path) {
  const auto key = KeyOf(path);
  if (!key.ok()) return false;
  const auto below = client_->List(absl::StrCat(*key, "/"), /*by_directory=*/false, "", 1);
  return (below.ok() && !below->empty()) || client_->Head(*key).ok();
}

absl::Status S3Storage::NoObjects(std::string_view directory) const {
  const std::string name = FullPath(directory);
  return MakeError(Reason::kFileMissing, absl::StrCat(name, " has no objects"), {{"file", name}});
}

absl::StatusOr<std::vector<Storage::Entry>> S3Storage::List(std::string_view directory) {
  CAIRN_ASSIGN_OR_RETURN(const std::string prefix, PrefixOf(directory));
  CAIRN_ASSIGN_OR_RETURN(const auto listed, client_->List(prefix, /*by_directory=*/true));
  if (listed.empty() && !directory.empty()) {
    return NoObjects(directory);
  }
  std::vector<Entry> entries;
  for (const S3Listed& one : listed) {
    std::string name = one.name.substr(prefix.size());
    if (one.prefix) name.pop_back();
    if (!name.empty()) entries.push_back({std::move(name), one.prefix, /*unfinished=*/false, one.etag});
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::vector<absl::StatusOr<std::vector<Storage::Entry>>> S3Storage::ListEach(std::string_view parent,
                                                                             const std::vector<std::string>& names) {
  std::vector<absl::StatusOr<std::vector<Entry>>> lists(names.size());
  const auto prefix = PrefixOf(parent);
  if (!prefix.ok()) {
    std::fill(lists.begin(), lists.end(), prefix.status());
    return lists;
  }
  const size_t ranges = (names.size() + kDirectoriesInRange - 1) / kDirectoriesInRange;
  const absl::Status enough = ForEachOnThreads("to list", ranges, CallsAtOnce(), [&](size_t range, int) {
    const size_t begin = range * kDirectoriesInRange;
    const size_t count = std::min(kDirectoriesInRange, names.size() - begin);
    S3DirectoryLists found(*prefix, std::span(names).subspan(begin, count));
    absl::Status status;
    while (status.ok() && !found.complete()) {
      const auto page = client_->List(*prefix, /*by_directory=*/false, found.after(), S3DirectoryLists::kPage);
      status = page.ok() ? found.Add(*page) : page.status();
    }
    for (size_t i = 0; i < count; ++i) {
      std::vector<Entry> entries = found.Take(i);
      if (!found.has(i)) {
        lists[begin + i] = status;
      } else if (entries.empty()) {
        lists[begin + i] = NoObjects(absl::StrCat(std::string(parent), "/", names[begin + i]));
      } else {
        lists[begin + i] = std::move(entries);
      }
    }
    return absl::OkStatus();
  });
  // Without memory nothing is known of any.
  if (!enough.ok()) std::fill(lists.begin(), lists.end(), enough);
  return lists;
}

absl::StatusOr<std::vector<std::optional<uint64_t>>> S3Storage::SizesOf(std::string_view directory,
                                                                        const std::vector<std::string>& names) {
  CAIRN_ASSIGN_OR_RETURN(const std::string prefix, PrefixOf(directory));
  // A store lists what it has, so one listing is as good as a question for each.
  CAIRN_ASSIGN_OR_RETURN(const auto listed, client_->List(prefix, /*by_directory=*/true));
  std::map<std::string, std::optional<uint64_t>> sizes;
  for (const S3Listed& one : listed) {
    if (!one.prefix) sizes[one.name.substr(prefix.size())] = one.bytes;
  }
  std::vector<std::optional<uint64_t>> found;
  for (const std::string& name : names) found.push_back(sizes[name]);
  return found;
}

PutResult S3Storage::TryPutIfAbsent(std::string_view path, std::string_view bytes) {
  const auto key = KeyOf(path);
  if (!key.ok()) return {key.status()};
  return client_->PutObject(*key, bytes, /*if_absent=*/true);
}

absl::Status S3Storage::PutReplacing(std::string_view path, std::span<const std::string_view> pieces) {
  CAIRN_ASSIGN_OR_RETURN(const std::string key, KeyOf(path));
  if (pieces.size() == 1) return client_->PutObject(key, pieces.front(), /*if_absent=*/false).put.status();
  return WithMemory(absl::StrCat("to write ", FullPath(path)), [&] {
    std::string bytes;
    for (const std::string_view piece : pieces) bytes += piece;
    return client_->PutObject(key, bytes, /*if_absent=*/false).put.status();
  });
}

absl::StatusOr<Put> S3Storage::ClaimDirectory(std::string_view path, const std::string& file, std::string_view bytes) {
  CAIRN_ASSIGN_OR_RETURN(const std::string prefix, PrefixOf(path));
  CAIRN_ASSIGN_OR_RETURN(const auto standing, client_->List(prefix, /*by_directory=*/false, "", 1));
  if (!standing.empty()) return Put::kExists;
  // If several callers have found nothing, one of them gets it, because all put the same file.
  return client_->PutObject(absl::StrCat(prefix, file), bytes, /*if_absent=*/true).put;
}

absl::StatusOr<std::unique_ptr<FileWriter>> S3Storage::Create(std::string_view path, uint64_t header_bytes,
                                                              uint64_t data_bytes) {
  CAIRN_ASSIGN_OR_RETURN(std::string key, KeyOf(path));
  return std::make_unique<S3FileWriter>(*client_, std::move(key), FullPath(path), header_bytes, data_bytes);
}

absl::StatusOr<std::unique_ptr<Upload>> S3Storage::NewUpload(std::string_view path) {
  CAIRN_ASSIGN_OR_RETURN(std::string key, KeyOf(path));
  return std::make_unique<S3Upload>(*client_, std::move(key), FullPath(path));
}

absl::StatusOr<std::string> S3Storage::ReadOrMakeSecret(std::string_view path) {
  std::string secret = RandomToken(kSecretLength / 2);
  CAIRN_ASSIGN_OR_RETURN(const Put put, PutIfAbsent(path, absl::StrCat(secret, "\n")));
  if (put == Put::kCreated) return secret;
  CAIRN_ASSIGN_OR_RETURN(secret, Read(path, 2 * kSecretLength));
  while (!secret.empty() && secret.back() == '\n') secret.pop_back();
  if (secret.size() == kSecretLength && secret.find_first_not_of("0123456789abcdef") == secret.npos) return secret;
  return MakeError(Reason::kFileTruncated, absl::StrCat(FullPath(path), " does not hold a secret"),
                   {{"file", FullPath(path)}});
}

absl::Status S3Storage::RemoveAll(std::string_view path) {
  CAIRN_ASSIGN_OR_RETURN(const std::string key, KeyOf(path));
  const std::string prefix = absl::StrCat(key, "/");
  // First, because an upload that ends after the listing would leave a file.
  CAIRN_RETURN_IF_ERROR(AbortUploads(prefix, [](const S3UnfinishedUpload&) { return true; }));
  CAIRN_ASSIGN_OR_RETURN(const auto listed, client_->List(prefix, /*by_directory=*/false));
  std::vector<std::string> keys = {key};
  for (const S3Listed& one : listed) keys.push_back(one.name);
  return client_->Delete(keys);
}

absl::Status S3Storage::RemoveAllOf(std::string_view directory, const std::vector<std::string>& names) {
  CAIRN_ASSIGN_OR_RETURN(const std::string prefix, PrefixOf(directory));
  const std::set<std::string> wanted(names.begin(), names.end());
  for (const std::string& name : wanted) CAIRN_RETURN_IF_ERROR(ConfinedComponents(name).status());
  CAIRN_ASSIGN_OR_RETURN(const auto standing, client_->List(prefix, /*by_directory=*/true));
  std::vector<std::string> keys;
  for (const S3Listed& one : standing) {
    std::string name = one.name.substr(prefix.size());
    if (one.prefix) name.pop_back();
    if (!wanted.contains(name)) continue;
    if (!one.prefix) {
      keys.push_back(one.name);
      continue;
    }
    CAIRN_ASSIGN_OR_RETURN(const auto below, client_->List(one.name, /*by_directory=*/false));
    for (const S3Listed& file : below) keys.push_back(file.name);
  }
  return client_->Delete(keys);
}

absl::Status S3Storage::AbortUploads(const std::string& prefix,
                                     absl::FunctionRef<bool(const S3UnfinishedUpload&)> wanted) {
  CAIRN_ASSIGN_OR_RETURN(const auto uploads, client_->uploads().List(prefix));
  absl::Status first;
  for (const S3UnfinishedUpload& upload : uploads) {
    if (wanted(upload)) first.Update(client_->uploads().Abort(upload.key, upload.id));
  }
  return first;
}

absl::Status S3Storage::RemoveUnfinished(const std::vector<std::string>& directories, absl::Time before) {
  std::set<std::string> prefixes;
  for (const std::string& directory : directories) {
    CAIRN_ASSIGN_OR_RETURN(std::string prefix, PrefixOf(directory));
    prefixes.insert(std::move(prefix));
  }
  if (prefixes.empty()) return absl::OkStatus();
  const std::string all = prefixes.size() == 1 ? *prefixes.begin() : client_->address().prefix;
  return AbortUploads(all, [&](const S3UnfinishedUpload& upload) {
    // What is in a directory below belongs to somebody else.
    return upload.begun < before && prefixes.contains(upload.key.substr(0, upload.key.rfind('/') + 1));
  });
}

absl::StatusOr<std::unique_ptr<RootLock>> S3Storage::LockRoot() {
  CAIRN_ASSIGN_OR_RETURN(auto lock, S3RootLock::Acquire(*this, *client_));
  // It does not matter if some stay.
  AbortUploads(client_->address().prefix, [&](const S3UnfinishedUpload& upload) {
    return upload.begun < lock->began() - kUploadOfSave;
  }).IgnoreError();
  return lock;
}

absl::Duration S3Storage::LockOutlivesHolder() const { return S3RootLock::kLease; }

absl::StatusOr<std::optional<RootHolder>> S3Storage::HolderOfRoot() { return S3RootLock::HolderOf(*this, *client_); }

StorageFacts S3Storage::Facts() {
  StorageFacts facts;
  const std::string path = absl::StrCat(".cairn/clock-", RandomToken(8));
  if (PutReplacing(path, "1").ok()) {
    const auto object = client_->Head(absl::StrCat(client_->address().prefix, path));
    if (object.ok()) facts.clocks = {object->now, Clock::Real().WallNow()};
    RemoveAll(path).IgnoreError();
  }
  if (const auto uploads = client_->uploads().List(client_->address().prefix); uploads.ok()) {
    facts.unfinished_uploads = {uploads->size(), absl::InfiniteFuture()};
    for (const S3UnfinishedUpload& upload : *uploads) {
      facts.unfinished_uploads->oldest = std::min(facts.unfinished_uploads->oldest, upload.begun);
    }
  }
  return facts;
}

absl::Status S3Storage::ProbeAtomicCreate() {
  const std::string path = absl::StrCat(".cairn/probe-", RandomToken(8));
  const auto first = PutIfAbsent(path, "1");
  const auto second = first.ok() ? PutIfAbsent(path, "2") : first;
  const auto content = first.ok() ? Read(path, 16) : absl::StatusOr<std::string>("");
  const absl::Status removed = RemoveAll(path);
  CAIRN_RETURN_IF_ERROR(first.status());
  CAIRN_RETURN_IF_ERROR(second.status());
  CAIRN_RETURN_IF_ERROR(removed);
  if (*first == Put::kCreated && *second == Put::kExists && content.ok() && *content == "1") return absl::OkStatus();
  const auto& condition = client_->address().dialect->if_absent.front();
  return MakeError(
      Reason::kNoAtomicCreate,
      absl::StrCat(root(), ": the store ", client_->address().server.host, " takes \"", condition.first, ": ",
                   condition.second, "\" and replaces objects all the same, so a commit could not be made safe"),
      {{"file", root()}, {"next", "Use a store that keeps this condition; Google's is gs://."}});
}

}  // namespace cairn
