#include "store/storage/storage.h"

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {

std::string Storage::FullPath(std::string_view path) const {
  return absl::StrCat(root_ == "/" ? "" : root_, "/", std::string(path));
}

absl::StatusOr<Storage::Content> Storage::ReadContent(std::string_view path, uint64_t max_bytes, Cache cache) {
  CAIRN_ASSIGN_OR_RETURN(const auto file, Open(path, {.cache = cache}));
  CAIRN_ASSIGN_OR_RETURN(std::string bytes, ReadAll(*file, max_bytes));
  return Content{std::move(bytes), file->identity()};
}

absl::StatusOr<std::string> Storage::Read(std::string_view path, uint64_t max_bytes, Cache cache) {
  CAIRN_ASSIGN_OR_RETURN(Content content, ReadContent(path, max_bytes, cache));
  return std::move(content.bytes);
}

std::vector<absl::StatusOr<std::vector<Storage::Entry>>> Storage::ListEach(std::string_view parent,
                                                                           const std::vector<std::string>& names) {
  std::vector<absl::StatusOr<std::vector<Entry>>> lists;
  lists.reserve(names.size());
  for (const std::string& name : names) {
    lists.push_back(List(parent.empty() ? name : absl::StrCat(std::string(parent), "/", name)));
  }
  return lists;
}

absl::StatusOr<std::unique_ptr<RootLock>> Storage::TakeRoot() {
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<RootLock> lock, LockRoot());
  // What cannot be removed is no reason to fail: the next holder tries again.
  RemoveUnfinished({"", ".cairn", ".cairn/plans"}, lock->began()).IgnoreError();
  return lock;
}

absl::Status GaveOtherBytes(const std::string& file, std::string_view question) {
  return MakeError(Reason::kStorageError,
                   absl::StrCat(file, " gave other bytes when it was read a second time, so it is not known ",
                                std::string(question)),
                   {{"file", file}});
}

}  // namespace cairn
