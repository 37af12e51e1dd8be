#include "agent/sockets/lent_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "agent/sockets/descriptor_socket.h"
#include "common/status/reason.h"
#include "common/status/status.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace cairn {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr int kWriteSeals = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;

}  // namespace

absl::StatusOr<std::shared_ptr<LentMemory>> LentMemory::Map(const std::string& path, uint64_t id, uint64_t bytes,
                                                            uid_t owner) {
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd fd, ReceiveDescriptor(path, id, owner));
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals || (seals & kWriteSeals) == 0) {
    return MakeError(Reason::kMemoryUnsealed,
                     absl::StrCat("the memory that ", path, " lends is not sealed against writing"),
                     {{"address", path}});
  }
  struct stat status = {};
  if (fstat(fd.get(), &status) != 0 || bytes == 0 || static_cast<uint64_t>(status.st_size) < bytes) {
    return MakeError(Reason::kTransportFailed, absl::StrCat("the memory that ", path, " lends has ", status.st_size,
                                                            " bytes instead of ", bytes));
  }
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) {
    return MakeError(Reason::kMemoryLimit,
                     absl::StrCat(bytes, " bytes of the memory that ", path,
                                  " lends cannot be mapped: ", std::generic_category().message(errno)));
  }
  return std::shared_ptr<LentMemory>(new LentMemory(static_cast<const char*>(data), bytes));
}

LentMemory::~LentMemory() { munmap(const_cast<char*>(data_), bytes_); }

}  // namespace cairn
