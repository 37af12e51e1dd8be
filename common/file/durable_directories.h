// Directories whose names survive a power cut.
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

// Thread-safe. It remembers which ones it has made durable: most are found again with every attempt.
class DurableDirectories {
 public:
  // A directory that cannot be taken for another one: device, inode, time of birth (0 where there is none).
  using Identity = std::tuple<uint64_t, uint64_t, int64_t>;
  // A name of a directory that has to be synced yet.
  struct Unsynced {
    UniqueFd parent;
    Identity child;
  };

  // Makes the directories `parts` within each other below `current`, where they are not there, and opens the last one.
  // Adds to `unsynced` what Sync must make durable, also of those that stood there. `path` is for errors: the reasons
  // of errno_error.h, and PATH_ESCAPE for a link.
  absl::StatusOr<UniqueFd> OpenOrMake(UniqueFd current, const std::vector<std::string>& parts, std::string_view path,
                                      std::vector<Unsynced>& unsynced);
  absl::Status Sync(const std::vector<Unsynced>& unsynced, std::string_view path);

 private:
  Mutex mutex_;
  std::set<Identity> durable_ ABSL_GUARDED_BY(mutex_);
};

// Gives a directory's next fsync something to write: the kernel tells a failed one once and takes the pages for clean
// afterwards, so an entry is made and removed. The errno, or 0.
int DirtyDirectory(int directory);

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_DURABLE_DIRECTORIES_H_
