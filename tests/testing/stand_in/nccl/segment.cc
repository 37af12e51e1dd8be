#include "tests/testing/stand_in/nccl/segment.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace cairn::stand_in {
namespace {

constexpr size_t kHeaderBytes = 4096;
static_assert(Segment::kMostRanks * sizeof(std::atomic<uint32_t>) <= kHeaderBytes);

}  // namespace

size_t Ring::Write(const char* from, size_t bytes) {
  const uint64_t written = written_.load(std::memory_order_relaxed);
  const size_t room = kBytes - static_cast<size_t>(written - read_.load(std::memory_order_acquire));
  const size_t at = static_cast<size_t>(written % kBytes);
  const size_t moved = std::min({bytes, room, kBytes - at});
  std::memcpy(bytes_ + at, from, moved);
  written_.store(written + moved, std::memory_order_release);
  return moved;
}

size_t Ring::Read(char* to, size_t bytes) {
  const uint64_t read = read_.load(std::memory_order_relaxed);
  const size_t there = static_cast<size_t>(written_.load(std::memory_order_acquire) - read);
  const size_t at = static_cast<size_t>(read % kBytes);
  const size_t moved = std::min({bytes, there, kBytes - at});
  std::memcpy(to, bytes_ + at, moved);
  read_.store(read + moved, std::memory_order_release);
  return moved;
}

size_t Segment::BytesOf(int ranks) {
  return kHeaderBytes + static_cast<size_t>(ranks) * static_cast<size_t>(ranks) * sizeof(Ring);
}

int Segment::Create(int ranks) {
  const int fd = memfd_create("stand-in-nccl", MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, static_cast<off_t>(BytesOf(ranks))) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

std::shared_ptr<Segment> Segment::Map(int fd, int ranks) {
  void* data = mmap(nullptr, BytesOf(ranks), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (data == MAP_FAILED) return nullptr;
  return std::shared_ptr<Segment>(new Segment(static_cast<char*>(data), ranks));
}

Segment::~Segment() { munmap(data_, BytesOf(ranks_)); }

Ring& Segment::ring(int from, int to) {
  return reinterpret_cast<Ring*>(
      data_ + kHeaderBytes)[static_cast<size_t>(from) * static_cast<size_t>(ranks_) + static_cast<size_t>(to)];
}

std::atomic<uint32_t>& Segment::dead(int rank) {
  return reinterpret_cast<std::atomic<uint32_t>*>(data_)[static_cast<size_t>(rank)];
}

}  // namespace cairn::stand_in
