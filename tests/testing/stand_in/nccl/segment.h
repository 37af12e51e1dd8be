// The memory that the ranks of one communicator share: for each ordered pair a ring of bytes, and a letter for what is
// large.
#ifndef CAIRN_TESTS_TESTING_STAND_IN_NCCL_SEGMENT_H_
#define CAIRN_TESTS_TESTING_STAND_IN_NCCL_SEGMENT_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tests/testing/stand_in/nccl/peer_memory.h"

namespace cairn::stand_in {

// One process writes, another one reads. All zero is an empty ring.
class Ring {
 public:
  // Moves as many bytes as fit, or as there are; returns how many.
  size_t Write(const char* from, size_t bytes);
  size_t Read(char* to, size_t bytes);

 private:
  static constexpr size_t kBytes = size_t{1} << 20;
  alignas(64) std::atomic<uint64_t> written_;
  alignas(64) std::atomic<uint64_t> read_;
  alignas(64) char bytes_[kBytes];
};

// Says where bytes are that the receiver takes from the sender's memory, with one copy and without waiting for each
// other in between: out of memory that both have mapped or, if the system does not let it map that, by the kernel. All
// zero is no letter.
class Letter {
 public:
  enum class State : uint32_t { kNone, kSent, kTaken, kRefused };

  State state() const { return state_.load(std::memory_order_acquire); }
  // The sender calls it.
  void Send(const char* bytes, size_t count, PeerMemory& memory);
  void Clear() { state_.store(State::kNone, std::memory_order_release); }
  // By the receiver of a letter that was sent. Reads bytes from `offset` of it: returns how many; 0 if the sender is
  // gone or has given its memory up; -1 if the system forbids it.
  ssize_t Read(size_t offset, char* to, size_t bytes) const;
  // Returns where the bytes stand in this process; null if they cannot be mapped.
  std::shared_ptr<const char> Map(PeerMemory& memory) const { return memory.Map(range_, bytes_); }
  void Answer(State state) { state_.store(state, std::memory_order_release); }

 private:
  alignas(64) std::atomic<State> state_;
  pid_t process_;
  const char* bytes_;
  SharedRange range_;
};

// Wakes a rank that waits for others. All zero is a bell that nobody has rung.
class Bell {
 public:
  // What a rank has seen of the segment after this call, it need not be woken for.
  uint32_t rung() const { return rung_.load(); }
  void Ring();
  // Returns when it has been rung since rung() gave `heard`, or after a millisecond.
  void Await(uint32_t heard);

 private:
  alignas(64) std::atomic<uint32_t> rung_;
  std::atomic<uint32_t> waiting_;
};

class Segment {
 public:
  static constexpr int kMostRanks = 64;

  // Returns the descriptor of a new one; -1 on failure.
  static int Create(int ranks);
  // Takes the descriptor. Returns null on failure.
  static std::shared_ptr<Segment> Map(int fd, int ranks);
  ~Segment();

  Ring& ring(int from, int to);
  Letter& letter(int from, int to);
  // The rank that it belongs to waits for it; others ring it after they have moved something that it waits for.
  Bell& bell(int rank);
  // A rank that has ended without a word.
  std::atomic<uint32_t>& dead(int rank);

 private:
  Segment(char* data, int ranks) : data_(data), ranks_(ranks) {}
  static size_t BytesOf(int ranks);
  size_t PairOf(int from, int to) const;

  char* const data_;
  const int ranks_;
};

}  // namespace cairn::stand_in

#endif  // CAIRN_TESTS_TESTING_STAND_IN_NCCL_SEGMENT_H_
