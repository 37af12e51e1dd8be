#include "tests/fault/file_layer/control.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>

namespace cairn::testing {
namespace {

// This library stands before the C library, so its own calls go to the kernel.
int OpenRaw(const char* path, int flags) {
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0));
}

// What this process is called on the page, by its command line.
std::string NameOfProcess() {
  char text[8192];
  const int fd = OpenRaw("/proc/self/cmdline", O_RDONLY);
  const ssize_t size = fd < 0 ? 0 : syscall(SYS_read, fd, text, sizeof(text));
  if (fd >= 0) syscall(SYS_close, fd);
  std::string_view all(text, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  std::string_view program = all.substr(0, all.find('\0'));
  program = program.substr(program.rfind('/') + 1);
  if (program == "cairn-coordinator") return "coordinator";
  if (program == "cairn") return "command";
  if (program != "cairn-agent") return "";
  const std::string_view flag = "--rank=";
  const size_t begin = all.find(flag);
  if (begin == std::string_view::npos) return "";
  const std::string_view rank = all.substr(begin + flag.size());
  return "agent-" + std::string(rank.substr(0, rank.find('\0')));
}

Page* MapPage() {
  const char* path = getenv("FAULTS_PAGE");
  if (path == nullptr) return nullptr;
  const int fd = OpenRaw(path, O_RDWR);
  if (fd < 0) return nullptr;
  void* mapped = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  syscall(SYS_close, fd);
  auto* page = static_cast<Page*>(mapped);
  return mapped == MAP_FAILED || page->magic != Page::kMagic ? nullptr : page;
}

Slot* FindSlot() {
  Page* page = SharedPage();
  if (page == nullptr) return nullptr;
  const std::string name = NameOfProcess();
  for (Slot& slot : page->slots) {
    if (!name.empty() && name == slot.name) return &slot;
  }
  return nullptr;
}

Slot* OwnSlot() {
  static Slot* const slot = FindSlot();
  return slot;
}

// The errnos with which a file system may refuse a call of this kind. Some leave it open whether the call took effect.
std::span<const int> ErrorsOf(Kind kind) {
  static constexpr int kOpenErrors[] = {EIO, EACCES, EMFILE, ESTALE, EINTR, ENOMEM};
  static constexpr int kCreateErrors[] = {EIO, ENOSPC, EACCES, EDQUOT, EROFS, EMFILE, EINTR};
  static constexpr int kReadErrors[] = {EIO, ESTALE, EINTR};
  static constexpr int kWriteErrors[] = {EIO, ENOSPC, EDQUOT, EINTR, ESTALE};
  static constexpr int kSyncErrors[] = {EIO, ENOSPC, EDQUOT, EINTR};
  static constexpr int kNameErrors[] = {EIO, ENOSPC, EACCES, EDQUOT, EROFS, ESTALE, EINTR};
  static constexpr int kLinkErrors[] = {EIO, ENOSPC, EPERM, EMLINK, EDQUOT, ESTALE, EINTR};
  static constexpr int kRemoveErrors[] = {EIO, EACCES, EBUSY, EROFS, ESTALE, EINTR};
  static constexpr int kLengthErrors[] = {EIO, ENOSPC, EDQUOT, EINTR};
  static constexpr int kAllocateErrors[] = {ENOSPC, EOPNOTSUPP, EIO, EDQUOT, EINTR};
  static constexpr int kListErrors[] = {EIO, ESTALE};
  static constexpr int kLookErrors[] = {EIO, EACCES, ESTALE, EINTR};
  static constexpr int kCloseErrors[] = {EIO, ENOSPC, EDQUOT};
  switch (kind) {
    case Kind::kOpen:
      return kOpenErrors;
    case Kind::kCreate:
      return kCreateErrors;
    case Kind::kRead:
      return kReadErrors;
    case Kind::kWrite:
      return kWriteErrors;
    case Kind::kSync:
      return kSyncErrors;
    case Kind::kLink:
      return kLinkErrors;
    case Kind::kRename:
    case Kind::kMakeDirectory:
      return kNameErrors;
    case Kind::kUnlink:
    case Kind::kRemoveDirectory:
      return kRemoveErrors;
    case Kind::kTruncate:
      return kLengthErrors;
    case Kind::kAllocate:
      return kAllocateErrors;
    case Kind::kList:
      return kListErrors;
    case Kind::kLook:
      return kLookErrors;
    case Kind::kClose:
      return kCloseErrors;
    case Kind::kSend:
      return {};
  }
  return {};
}

// A lie is told only where the caller cannot do harm by it that is not meant: a call that gives a descriptor, or bytes,
// would lose them.
bool MayLie(Kind kind) {
  return kind == Kind::kCreate || kind == Kind::kWrite || kind == Kind::kSync || kind == Kind::kLink ||
         kind == Kind::kRename || kind == Kind::kUnlink || kind == Kind::kMakeDirectory ||
         kind == Kind::kRemoveDirectory || kind == Kind::kTruncate || kind == Kind::kClose;
}

bool HasBytes(Kind kind) { return kind == Kind::kRead || kind == Kind::kWrite; }

// Says on the page what the fault has met.
void Tell(Slot& slot, Kind kind, const char* call, int error, const std::string& path) {
  std::string text = std::string(call) + (error == 0 ? "" : std::string(" ") + strerrorname_np(error)) + " " + path;
  text.resize(std::min(text.size(), Slot::kTextSize - 1));
  memcpy(slot.met, text.c_str(), text.size() + 1);
  slot.fired.store(static_cast<uint32_t>(kind) + 1);
}

}  // namespace

Page* SharedPage() {
  static Page* const page = MapPage();
  return page;
}

bool Swept(const std::string& path) {
  static const std::string root = [] {
    const char* value = getenv("FAULTS_ROOT");
    return std::string(value == nullptr ? "" : value);
  }();
  return !root.empty() && path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/');
}

std::string PathOf(int fd) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t size = syscall(SYS_readlink, link.c_str(), path, sizeof(path));
  return size < 0 ? "" : std::string(path, static_cast<size_t>(size));
}

std::string PathIn(int directory, const char* name) {
  if (name[0] == '/') return name;
  if (directory != AT_FDCWD) return PathOf(directory) + "/" + name;
  char path[4096];
  return syscall(SYS_getcwd, path, sizeof(path)) > 0 ? std::string(path) + "/" + name : name;
}

void Die() {
  syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
  for (;;) pause();
}

Fault Meet(Kind kind, const char* call, const std::string& path) {
  Slot* slot = OwnSlot();
  if (slot == nullptr || SharedPage()->armed.load() == 0) return {};
  if (kind == Kind::kSend && slot->sends == 0) return {};
  const uint32_t number = slot->calls.fetch_add(1) + 1;
  if (slot->at == 0 || number < slot->at) return {};
  Fault fault{slot->action, 0};
  if (number > slot->at &&
      (fault.action != Action::kFailFrom || slot->fired.load() != static_cast<uint32_t>(kind) + 1)) {
    return {};
  }
  const std::span<const int> errors = ErrorsOf(kind);
  if (fault.action == Action::kLie && !MayLie(kind)) fault.action = Action::kFail;
  if (fault.action == Action::kShort && !HasBytes(kind)) fault.action = Action::kFail;
  const bool fails = fault.action == Action::kFail || fault.action == Action::kFailFrom || fault.action == Action::kLie;
  if (fails && errors.empty()) {  // a message that is not sent: whoever sends it has ended
    if (number > slot->at) return {};
    fault.action = Action::kKillBefore;
  }
  if (fails && !errors.empty()) {
    fault.error = errors[slot->choice % errors.size()];
    // What interrupts each call for ever would let nobody go on.
    if (fault.action == Action::kFailFrom && fault.error == EINTR) fault.error = errors[0];
    if (fault.action == Action::kLie && fault.error == EINTR && kind == Kind::kWrite) fault.error = errors[0];
  }
  if (number == slot->at) Tell(*slot, kind, call, fault.error, path);
  if (fault.action == Action::kKillBefore) Die();
  if (fault.action == Action::kFreeze) syscall(SYS_kill, syscall(SYS_getpid), SIGSTOP);
  if (fault.action == Action::kFreeze || fault.action == Action::kNothing) return {};
  return fault;
}

}  // namespace cairn::testing
