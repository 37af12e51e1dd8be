// Raises the limit on open files of this process, and divides it between files and connections.
#ifndef CAIRN_COMMON_RESOURCES_OPEN_FILES_H_
#define CAIRN_COMMON_RESOURCES_OPEN_FILES_H_

#include <cstdint>

namespace cairn {

// Raises the soft limit (ulimit -n) to the hard limit, and returns the limit that is now in force; 0 if the system does
// not tell it. The soft limit is often 1024, for programs that use select(). A process with a connection to each of its
// peers needs more. Child processes inherit the limit.
uint64_t RaiseOpenFileLimit();

struct OpenFileShares {
  uint64_t files = 0;      // reserved for files, which storage and commits need; no connection takes these
  uint64_t strangers = 0;  // the maximum number of connections that have not proven themselves
};
// Returns the shares of a limit. The rest is for connections of peers.
OpenFileShares SharesOfOpenFiles(uint64_t limit);
// Returns how many connections of peers a limit on open files allows.
uint64_t PeersWithin(uint64_t limit);
// Returns a limit that is enough for this many peers.
uint64_t LimitForPeers(uint64_t peers);

}  // namespace cairn

#endif  // CAIRN_COMMON_RESOURCES_OPEN_FILES_H_
