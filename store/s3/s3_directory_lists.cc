#include "store/s3/s3_directory_lists.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// Names that Cairn gives begin with letters, digits and dots, which all come before this.
constexpr char kBehindNames[] = "~";
// Comes after the slash.
constexpr char kBehindSlash[] = "0";
static_assert(kBehindSlash[0] == '/' + 1);

}  // namespace

S3DirectoryLists::S3DirectoryLists(std::string prefix, std::span<const std::string> names)
    : prefix_(std::move(prefix)),
      names_(names),
      lists_(names.size()),
      after_(absl::StrCat(prefix_, names.front(), "/")) {}

void S3DirectoryLists::AddKey(const S3Listed& listed) {
  const std::string_view path = std::string_view(listed.name).substr(prefix_.size());
  const size_t slash = path.find('/');
  if (slash == path.npos) return;
  const auto name = std::lower_bound(names_.begin(), names_.end(), path.substr(0, slash));
  if (name == names_.end() || *name != path.substr(0, slash)) return;
  const std::string_view rest = path.substr(slash + 1);
  Storage::Entry entry;
  entry.name = std::string(rest.substr(0, rest.find('/')));
  entry.directory = rest.find('/') != rest.npos;
  if (entry.name.empty()) return;
  if (!entry.directory) entry.identity = listed.etag;
  std::vector<Storage::Entry>& list = lists_[static_cast<size_t>(name - names_.begin())];
  // All keys of one directory come together.
  const bool known = entry.directory && !list.empty() && list.back().directory && list.back().name == entry.name;
  if (!known) list.push_back(std::move(entry));
}

absl::Status S3DirectoryLists::Add(const std::vector<S3Listed>& page) {
  if (!page.empty() && page.front().name <= after_) {
    return MakeError(Reason::kStorageError, absl::StrCat("the store lists ", page.front().name,
                                                         " where it was asked for what comes behind ", after_));
  }
  for (const S3Listed& listed : page) AddKey(listed);
  if (page.size() < kPage || page.back().name >= BehindOf(names_.size() - 1)) {
    complete_ = true;
    return absl::OkStatus();
  }
  after_ = page.back().name;
  // If the last key lies in a directory of a listed one, that one has its entry, and what else is in it is passed over.
  const size_t name = after_.find('/', prefix_.size());
  const size_t entry = name == after_.npos ? name : after_.find('/', name + 1);
  if (entry != after_.npos) after_ = std::max(after_, absl::StrCat(after_.substr(0, entry + 1), kBehindNames));
  return absl::OkStatus();
}

std::string S3DirectoryLists::BehindOf(size_t number) const {
  return absl::StrCat(prefix_, names_[number], kBehindSlash);
}

bool S3DirectoryLists::has(size_t number) const { return complete_ || after_ >= BehindOf(number); }

std::vector<Storage::Entry> S3DirectoryLists::Take(size_t number) {
  std::vector<Storage::Entry> list = std::move(lists_[number]);
  std::sort(list.begin(), list.end());
  return list;
}

}  // namespace cairn
