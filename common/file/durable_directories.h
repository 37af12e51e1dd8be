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

// Thread-safe. It remembers the directories that it has made durable, because every attempt finds most of them again.
class DurableDirectories {
 public:
  // Identifies a directory for good: device, inode, time of birth (0 where there is none).
  using Identity = std::tuple<uint64_t, uint64_t, int64_t>;
  // A directory's name that has to be synced yet.
  struct Unsynced {
    UniqueFd parent;
    Identity child;
  };

  // Makes those of the directories `parts` that are missing, each within the one before and the first one below
  // `current`, and opens the last one. Adds to `unsynced` what Sync must make durable, which may include directories
  // that were there. `path` is for errors: the reasons of errno_error.h, and PATH_ESCAPE for a link.
  absl::StatusOr<UniqueFd> OpenOrMake(UniqueFd current, const std::vector<std::string>& parts, std::string_view path,
                                      std::vector<Unsynced>& unsynced);
  absl::Status Sync(const std::vector<Unsynced>& unsynced, std::string_view path);

 private:
  Mutex mutex_;
  std::set<Identity> durable_ ABSL_GUARDED_BY(mutex_);
};

// Gives a directory's next fsync something to write, by making and removing an entry. This is needed because the kernel
// reports a failed fsync once and then takes the pages for clean. Returns the errno, or 0.
int DirtyDirectory(int directory);

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_DURABLE_DIRECTORIES_H_
