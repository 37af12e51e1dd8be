// What a person should know of a storage before jobs rely on it.
#ifndef CAIRN_STORE_STORAGE_STORAGE_FACTS_H_
#define CAIRN_STORE_STORAGE_STORAGE_FACTS_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace cairn {

// Facts that a kind of storage does not have, or that it could not find out, are left out.
struct StorageFacts {
  struct FreeSpace {
    uint64_t bytes = 0;   // available to this user
    uint64_t inodes = 0;  // if all_inodes is 0, the file system does not count inodes
    uint64_t all_inodes = 0;
  };
  std::optional<FreeSpace> free;
  // The errno of a write with O_DIRECT; 0 if it succeeded.
  std::optional<int> direct_error;
  // The time by the storage's own clock, which sets the times of files, and that of this machine at the same moment.
  struct Clocks {
    absl::Time storage;
    absl::Time machine;
  };
  std::optional<Clocks> clocks;
  // Uploads that were begun and neither completed nor aborted, and when the oldest of them was begun. They cost money.
  struct Uploads {
    uint64_t count = 0;
    absl::Time oldest;
  };
  std::optional<Uploads> unfinished_uploads;
};

}  // namespace cairn

#endif  // CAIRN_STORE_STORAGE_STORAGE_FACTS_H_
