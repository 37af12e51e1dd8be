#include "tests/fault/file_layer/record.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/fault/file_layer/control.h"

namespace cairn::testing {
namespace {

struct Header {
  uint32_t event, path_size, other_size, unused;
  uint64_t inode, offset, bytes;
};
static_assert(sizeof(Header) == 40);

// The thread that has the turn of this process, so that a call which is made of others takes it once.
thread_local int depth = 0;

int32_t Self() { return static_cast<int32_t>(syscall(SYS_gettid)); }

int RecordFile() {
  static const int fd = [] {
    const char* path = getenv("FAULTS_RECORD");
    if (path == nullptr) return -1;
    return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  }();
  return fd;
}

}  // namespace

Turn::Turn() {
  Page* page = SharedPage();
  if (page == nullptr || page->record.load() == 0 || RecordFile() < 0) return;
  counted_ = true;
  if (depth++ > 0) return;
  records_ = true;
  for (int tries = 1;; ++tries) {
    int32_t nobody = 0;
    if (page->record_turn.compare_exchange_strong(nobody, Self())) return;
    // A thread that was killed in its turn leaves it.
    if (tries % 1000 == 0 && syscall(SYS_kill, nobody, 0) != 0 && errno == ESRCH) {
      page->record_turn.compare_exchange_strong(nobody, 0);
    }
    sched_yield();
  }
}

Turn::~Turn() {
  if (counted_) --depth;
  if (records_) SharedPage()->record_turn.store(0);
}

void Turn::Add(Event event, uint64_t inode, const std::string& path, const std::string& other, uint64_t offset,
               std::string_view bytes) {
  if (!records_) return;
  const int before = errno;
  Header header{static_cast<uint32_t>(event),
                static_cast<uint32_t>(path.size()),
                static_cast<uint32_t>(other.size()),
                0,
                inode,
                offset,
                bytes.size()};
  std::string text(reinterpret_cast<const char*>(&header), sizeof(header));
  text.append(path).append(other).append(bytes);
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = syscall(SYS_write, RecordFile(), text.data() + done, text.size() - done);
    if (wrote <= 0) abort();  // a record with a hole would prove nothing
    done += static_cast<size_t>(wrote);
  }
  errno = before;
}

uint64_t InodeOf(int fd) {
  struct stat info = {};
  return syscall(SYS_fstat, fd, &info) == 0 ? info.st_ino : 0;
}

uint64_t InodeOf(const std::string& path) {
  struct stat info = {};
  return syscall(SYS_newfstatat, AT_FDCWD, path.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 ? info.st_ino : 0;
}

}  // namespace cairn::testing
