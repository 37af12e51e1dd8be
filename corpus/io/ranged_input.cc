#include "corpus/io/ranged_input.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/file/full_transfer.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/errno_status.h"
#include "corpus/io/file_kind.h"

namespace cairn::corpus {

absl::StatusOr<RangedInput> RangedInput::Open(const std::string& path) {
  RangedInput input;
  input.path_ = path;
  if (ObjectStores* const stores = StoresOf(path)) {
    CAIRN_ASSIGN_OR_RETURN(input.object_, stores->Open(path));
    input.bytes_ = input.object_->bytes();
    return input;
  }
  // Without O_NONBLOCK, the open of a FIFO waits for a writer.
  input.fd_ = UniqueFd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!input.fd_.valid()) return InputError("open", path, errno);
  struct stat found;
  if (fstat(input.fd_.get(), &found) != 0) return InputError("read", path, errno);
  if (!S_ISREG(found.st_mode)) {
    return MakeError(Reason::kInputUnreadable,
                     absl::StrCat(path, " is ", std::string(FileKind(found.st_mode)), ", no regular file"),
                     {{"file", path}});
  }
  input.bytes_ = static_cast<uint64_t>(found.st_size);
  return input;
}

absl::StatusOr<size_t> RangedInput::Read(uint64_t offset, void* to, size_t size) const {
  if (object_ != nullptr) {
    const size_t count = static_cast<size_t>(std::min<uint64_t>(size, bytes_ - std::min(offset, bytes_)));
    CAIRN_RETURN_IF_ERROR(object_->Read(offset, count, static_cast<char*>(to)));
    return count;
  }
  size_t got = 0;
  if (const int error = ReadFullyAt(fd_.get(), to, size, offset, got); error != 0) {
    return InputError("read", path_, error);
  }
  return got;
}

}  // namespace cairn::corpus
