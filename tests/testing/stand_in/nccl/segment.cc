#include "tests/testing/stand_in/nccl/segment.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

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

void Letter::Send(const char* bytes, size_t count, PeerMemory& memory) {
  process_ = getpid();
  bytes_ = bytes;
  range_ = memory.FindOwn(bytes, count);
  state_.store(State::kSent, std::memory_order_release);
}

ssize_t Letter::Read(size_t offset, char* to, size_t bytes) const {
  const iovec own = {to, bytes};
  const iovec other = {const_cast<char*>(bytes_) + offset, bytes};
  const ssize_t read = process_vm_readv(process_, &own, 1, &other, 1, 0);
  if (read >= 0) return read;
  return errno == EPERM || errno == ENOSYS ? -1 : 0;
}

void Bell::Ring() {
  ++rung_;
  if (waiting_ != 0) syscall(SYS_futex, &rung_, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void Bell::Await(uint32_t heard) {
  constexpr timespec kLongest = {0, 1'000'000};
  waiting_ = 1;
  syscall(SYS_futex, &rung_, FUTEX_WAIT, heard, &kLongest, nullptr, 0);
  waiting_ = 0;
}

size_t Segment::BytesOf(int ranks) {
  const auto many = static_cast<size_t>(ranks);
  return kHeaderBytes + many * many * (sizeof(Ring) + sizeof(Letter)) + many * sizeof(Bell);
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

Ring& Segment::ring(int from, int to) { return reinterpret_cast<Ring*>(data_ + kHeaderBytes)[PairOf(from, to)]; }

Letter& Segment::letter(int from, int to) {
  char* letters = data_ + kHeaderBytes + PairOf(ranks_, 0) * sizeof(Ring);
  return reinterpret_cast<Letter*>(letters)[PairOf(from, to)];
}

Bell& Segment::bell(int rank) {
  char* bells = data_ + kHeaderBytes + PairOf(ranks_, 0) * (sizeof(Ring) + sizeof(Letter));
  return reinterpret_cast<Bell*>(bells)[rank];
}

size_t Segment::PairOf(int from, int to) const {
  return static_cast<size_t>(from) * static_cast<size_t>(ranks_) + static_cast<size_t>(to);
}

std::atomic<uint32_t>& Segment::dead(int rank) {
  return reinterpret_cast<std::atomic<uint32_t>*>(data_)[static_cast<size_t>(rank)];
}

}  // namespace cairn::stand_in
