// Lists several directories of an object store at once, from listings of all keys in their order. A function of the
// pages that the store answers.
#ifndef CAIRN_STORE_S3_S3_DIRECTORY_LISTS_H_
#define CAIRN_STORE_S3_S3_DIRECTORY_LISTS_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "store/s3/s3_listing.h"
#include "store/storage/storage.h"

namespace cairn {

// Not thread-safe.
class S3DirectoryLists {
 public:
  // A page has this many keys, unless it is the last.
  static constexpr size_t kPage = 1000;

  // The directories `names` lie below `prefix`, which ends with a slash or is empty. `names` are not empty, ascend, and
  // must outlive this object.
  S3DirectoryLists(std::string prefix, std::span<const std::string> names);

  // The next page must have the keys that begin with the prefix and lie behind this one.
  const std::string& after() const { return after_; }
  bool complete() const { return complete_; }
  // Takes a page. UNAVAILABLE (STORAGE_ERROR): it has a key that is not behind after().
  absl::Status Add(const std::vector<S3Listed>& page);

  // Returns true if all of a directory was in the pages so far.
  bool has(size_t number) const;
  // Takes what is in a directory, by name.
  std::vector<Storage::Entry> Take(size_t number);

 private:
  void AddKey(const S3Listed& listed);
  // Returns a key that comes behind all keys in a directory.
  std::string BehindOf(size_t number) const;

  const std::string prefix_;
  const std::span<const std::string> names_;
  std::vector<std::vector<Storage::Entry>> lists_;
  std::string after_;
  bool complete_ = false;
};

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_DIRECTORY_LISTS_H_
