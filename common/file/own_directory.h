// Checks that nobody else can put files into a directory in which this user keeps sockets or secrets.
#ifndef CAIRN_COMMON_FILE_OWN_DIRECTORY_H_
#define CAIRN_COMMON_FILE_OWN_DIRECTORY_H_

#include <sys/stat.h>
#include <sys/types.h>

#include <string>

namespace cairn {

// Returns what is wrong if `info` is not of a directory that belongs to `uid` and that only `uid` may write to, for
// example "belongs to user 7, not to 0"; else an empty text. `info` must come from lstat, or from a descriptor that was
// opened without following a link.
std::string WhyNotOwn(const struct stat& info, uid_t uid);

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_OWN_DIRECTORY_H_
