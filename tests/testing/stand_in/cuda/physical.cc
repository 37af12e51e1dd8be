// Memory of devices that processes hand to each other. It lies in files of memory, whose last page says what it is. Who
// has memory of another process holds a lock on the file, which ends with the process.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tests/testing/stand_in/cuda/state.h"

namespace cairn::stand_in {
namespace {

constexpr uint64_t kMagic = 0x4d656d6f72796e31;

struct Label {
  uint64_t magic = kMagic;
  uint64_t id = 0;
  uint64_t bytes = 0;
  int64_t device = 0;  // as the machine counts them
};

size_t PageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

struct flock Lock(short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  return lock;
}

}  // namespace

Physical::Physical() : handle(TheState().next_handle += 16) { TheState().physicals.insert(this); }

Physical::Physical(int on, size_t size, unsigned long long types) : Physical() {
  device = on;
  bytes = size;
  handle_types = types;
  id = static_cast<uint64_t>(getpid()) << 32 | handle;
  file = memfd_create("stand-in-device", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(length() + PageBytes())) != 0) std::abort();
  Label label;
  label.id = id;
  label.bytes = bytes;
  label.device = device + TheState().settings.first_device;
  if (pwrite(file, &label, sizeof label, static_cast<off_t>(length())) != sizeof label) std::abort();
}

std::shared_ptr<Physical> Physical::Import(int given, uint64_t id) {
  // A description of its own, since locks belong to descriptions.
  const int file = open(("/proc/self/fd/" + std::to_string(given)).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return nullptr;
  struct stat about = {};
  Label label = {.magic = 0};
  const auto page = static_cast<off_t>(PageBytes());
  struct flock lock = Lock(F_RDLCK);
  const bool valid = fstat(file, &about) == 0 && about.st_size > page &&
                     pread(file, &label, sizeof label, about.st_size - page) == sizeof label && label.magic == kMagic &&
                     (id == 0 || id == label.id) && fcntl(file, F_OFD_SETLK, &lock) == 0;
  const int64_t device = label.device - TheState().settings.first_device;
  if (!valid || device < 0 || device >= TheState().settings.devices) {
    close(file);
    return nullptr;
  }
  std::shared_ptr<Physical> physical(new Physical);
  physical->device = static_cast<int>(device);
  physical->bytes = label.bytes;
  physical->id = label.id;
  physical->file = file;
  physical->imported = true;
  return physical;
}

std::shared_ptr<Physical> Physical::Import(const MemoryName& name) {
  const std::string path = "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.file);
  const int given = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (given < 0) return nullptr;
  std::shared_ptr<Physical> physical = Import(given, name.id);
  close(given);
  return physical;
}

Physical::~Physical() {
  TheState().physicals.erase(this);
  if (exported && !imported) {
    TheState().lent.push_back({.file = file, .device = device, .bytes = bytes});
    TheState().ForgetLent();
  } else {
    close(file);
  }
}

bool Physical::IsHeldElsewhere(int file) {
  struct flock lock = Lock(F_WRLCK);
  return fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

size_t Physical::length() const { return (bytes + PageBytes() - 1) / PageBytes() * PageBytes(); }

}  // namespace cairn::stand_in
