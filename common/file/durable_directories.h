// Makes directories whose names survive a power cut.
#ifndef CAIRN_COMMON_FILE_DURABLE_DIRECTORIES_H_
#define CAIRN_COMMON_FILE_DURABLE_DIRECTORIES_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/file/unique_fd.h"

namespace cairn {

// Thread-safe. Remembers which directories are durable, because most of an attempt's already exist.
class DurableDirectories {
 public:
  // Identifies a directory: device, inode, time of birth (0 if the file system has none). The time of birth
  // distinguishes a directory from an earlier one with the same inode.
  using Identity = std::tuple<uint64_t, uint64_t, int64_t>;
  // A directory whose name is not durable yet. `parent` must be synced.
  struct Unsynced {
    UniqueFd parent;
    Identity child;
  };

  // Opens the directory `current`/parts[0]/parts[1]/..., and makes those of its components that do not exist. Adds to
  // `unsynced` the directories that Sync must make durable, which may include some that existed before. `path` is for
  // errors: the reasons of errno_error.h, and PATH_ESCAPE for a link.
  absl::StatusOr<UniqueFd> OpenOrMake(UniqueFd current, const std::vector<std::string>& parts, std::string_view path,
                                      std::vector<Unsynced>& unsynced);
  absl::Status Sync(const std::vector<Unsynced>& unsynced, std::string_view path);

 private:
  Mutex mutex_;
  std::set<Identity> durable_ ABSL_GUARDED_BY(mutex_);
};

// Makes and removes an entry, so that the directory's next fsync has something to write. This is needed because the
// kernel reports a failed fsync only once and then considers the pages clean. Returns the errno, or 0.
int DirtyDirectory(int directory);

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_DURABLE_DIRECTORIES_H_
