// Names what a path stands for, in messages about one that is no regular file.
#ifndef CAIRN_CORPUS_IO_FILE_KIND_H_
#define CAIRN_CORPUS_IO_FILE_KIND_H_

#include <sys/stat.h>

#include <string_view>

namespace cairn::corpus {

// `mode` is st_mode.
inline std::string_view FileKind(mode_t mode) {
  if (S_ISREG(mode)) return "a regular file";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_FILE_KIND_H_
