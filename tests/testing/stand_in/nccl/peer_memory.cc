#include "tests/testing/stand_in/nccl/peer_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <string>

namespace cairn::stand_in {
namespace {

// See proc(5), map_files.
std::string PathOf(const SharedRange& range) {
  char path[96];
  std::snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIxPTR "-%" PRIxPTR, range.process, range.begin, range.end);
  return path;
}

// Maps what the range's process has mapped there now.
std::shared_ptr<const char> MapRange(const SharedRange& range) {
  const int fd = open(PathOf(range).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  struct stat file = {};
  const size_t bytes = range.end - range.begin;
  void* data = MAP_FAILED;
  if (fstat(fd, &file) == 0 && file.st_ino == range.inode) {
    data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(range.offset));
  }
  close(fd);
  if (data == MAP_FAILED) return nullptr;
  return {static_cast<const char*>(data), [bytes](const char* mapped) { munmap(const_cast<char*>(mapped), bytes); }};
}

// Returns whether the process still has that file there: others may have taken its place.
bool Stands(const SharedRange& range) {
  struct stat file = {};
  return stat(PathOf(range).c_str(), &file) == 0 && file.st_ino == range.inode;
}

SharedRange ReadMaps(const char* bytes, size_t count) {
  const auto address = reinterpret_cast<uintptr_t>(bytes);
  SharedRange range;
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return range;
  char line[512], rights[5] = {};
  while (std::fgets(line, sizeof(line), maps) != nullptr) {
    SharedRange each;
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %" SCNx64 " %*s %" SCNu64, &each.begin, &each.end, rights,
                    &each.offset, &each.inode) != 5) {
      continue;
    }
    if (address < each.begin || address >= each.end) continue;
    if (count <= each.end - address && rights[3] == 's' && each.inode != 0) {
      range = each;
      range.process = getpid();
    }
    break;
  }
  std::fclose(maps);
  return range;
}

}  // namespace

SharedRange PeerMemory::FindOwn(const char* bytes, size_t count) {
  const auto address = reinterpret_cast<uintptr_t>(bytes);
  const std::lock_guard lock(mutex_);
  const auto known = std::find_if(own_.begin(), own_.end(), [&](const SharedRange& each) {
    return address >= each.begin && address < each.end && count <= each.end - address;
  });
  if (known != own_.end() && Stands(*known)) {
    own_.splice(own_.begin(), own_, known);
    return own_.front();
  }
  if (known != own_.end()) own_.erase(known);
  const SharedRange range = ReadMaps(bytes, count);
  if (range.begin == 0) return range;
  own_.push_front(range);
  if (own_.size() > kMostKept) own_.pop_back();
  return range;
}

std::shared_ptr<const char> PeerMemory::Map(const SharedRange& range, const char* bytes) {
  const auto address = reinterpret_cast<uintptr_t>(bytes);
  if (range.begin == 0 || address < range.begin || address >= range.end) return nullptr;
  const std::lock_guard lock(mutex_);
  auto kept = std::find_if(kept_.begin(), kept_.end(), [&](const Mapped& each) { return each.range == range; });
  if (kept != kept_.end() && !Stands(range)) {
    kept_.erase(kept);
    return nullptr;
  }
  if (kept != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, kept);
  } else {
    std::shared_ptr<const char> memory = MapRange(range);
    if (memory == nullptr) return nullptr;
    kept_.push_front({range, std::move(memory)});
    if (kept_.size() > kMostKept) kept_.pop_back();
  }
  const std::shared_ptr<const char>& memory = kept_.front().memory;
  return {memory, memory.get() + (address - range.begin)};
}

}  // namespace cairn::stand_in
