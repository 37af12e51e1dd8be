#include "corpus/io/nameless_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace cairn::corpus {

UniqueFd OpenNameless(const std::string& directory, int flags) {
  UniqueFd fd(open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600));
  // If O_DIRECT is set, that flag may be what is refused, and a named file would be left behind.
  const bool unknown = errno == EOPNOTSUPP || errno == EISDIR || (errno == EINVAL && flags == 0);
  if (fd.valid() || !unknown) return fd;
  std::string name = directory + "/.cairn-XXXXXX";
  UniqueFd named(mkostemp(name.data(), O_CLOEXEC | flags));
  if (named.valid()) unlink(name.c_str());
  return named;
}

}  // namespace cairn::corpus
