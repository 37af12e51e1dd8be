// The memory that the ranks of one communicator share: a ring of bytes for each ordered pair.
#ifndef CAIRN_TESTS_TESTING_STAND_IN_NCCL_SEGMENT_H_
#define CAIRN_TESTS_TESTING_STAND_IN_NCCL_SEGMENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

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

class Segment {
 public:
  static constexpr int kMostRanks = 64;

  // Returns the descriptor of a new one; -1 on failure.
  static int Create(int ranks);
  // Takes the descriptor. Null on failure.
  static std::shared_ptr<Segment> Map(int fd, int ranks);
  ~Segment();

  Ring& ring(int from, int to);
  // A rank that has ended without a word.
  std::atomic<uint32_t>& dead(int rank);

 private:
  Segment(char* data, int ranks) : data_(data), ranks_(ranks) {}
  static size_t BytesOf(int ranks);

  char* const data_;
  const int ranks_;
};

}  // namespace cairn::stand_in

#endif  // CAIRN_TESTS_TESTING_STAND_IN_NCCL_SEGMENT_H_
