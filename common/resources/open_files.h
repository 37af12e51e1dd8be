// Raises the number of files and connections that a process may have open, and shares it out among them.
#ifndef CAIRN_COMMON_RESOURCES_OPEN_FILES_H_
#define CAIRN_COMMON_RESOURCES_OPEN_FILES_H_

#include <cstdint>

namespace cairn {

// Raises the limit (ulimit -n) as far as the system lets this process, and returns what it is now. The soft limit is
// often 1024, for programs that use select(); a process that has a connection to each of its peers needs more. Children
// inherit it.
uint64_t RaiseOpenFileLimit();

struct OpenFileShares {
  uint64_t files = 0;      // connections never take these: storage needs them, and so does what commits a save
  uint64_t strangers = 0;  // more connections that have not proven themselves are never held
};
// Returns the shares of a limit. What is left is for peers.
OpenFileShares SharesOfOpenFiles(uint64_t limit);
// Returns how many peers a limit leaves room for.
uint64_t PeersWithin(uint64_t limit);
// Returns a limit that leaves room for so many.
uint64_t LimitForPeers(uint64_t peers);

}  // namespace cairn

#endif  // CAIRN_COMMON_RESOURCES_OPEN_FILES_H_
