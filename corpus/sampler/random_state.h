// Draws the numbers of numpy's legacy RandomState and shuffles with them, bit for bit.
#ifndef CAIRN_CORPUS_SAMPLER_RANDOM_STATE_H_
#define CAIRN_CORPUS_SAMPLER_RANDOM_STATE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cairn::corpus {

// The generator is MT19937 (Matsumoto and Nishimura 1998), seeded by its init_genrand as numpy.random.RandomState seeds
// it with one integer. numpy promises never to change this stream (NEP 19). Not thread-safe.
class RandomState {
 public:
  explicit RandomState(uint32_t seed);

  uint32_t Next();

  // Does what `numpy.random.RandomState.shuffle` does to a one-dimensional array. From the last place to the second, it
  // swaps the value there with that of a random place at or below it. The random place is a draw under the least mask
  // of ones that covers it, drawn again while it is too large; places beyond 2^32 - 1 take two draws.
  //
  // The draws do not depend on the values, so they are made ahead and their cache lines are fetched early; otherwise
  // nearly every swap of a large array would wait for memory. `done` (may be null) counts values that have got their
  // place. Returns false if `stop` was set meanwhile; the values are then in no certain order.
  bool Shuffle(std::span<uint32_t> values, const std::atomic<bool>& stop, std::atomic<uint64_t>* done);
  bool Shuffle(std::span<int64_t> values, const std::atomic<bool>& stop, std::atomic<uint64_t>* done);

 private:
  static constexpr size_t kWords = 624;

  void Refill();
  template <typename T>
  bool ShuffleAny(std::span<T> values, const std::atomic<bool>& stop, std::atomic<uint64_t>* done);
  template <typename T>
  bool ShuffleBelow32Bits(std::span<T> values, const std::atomic<bool>& stop, std::atomic<uint64_t>* done);
  uint64_t PlaceUpTo(uint64_t most);

  alignas(16) std::array<uint32_t, kWords> state_;
  alignas(16) std::array<uint32_t, kWords> draws_;  // state_, tempered
  size_t next_ = kWords;                            // in draws_
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SAMPLER_RANDOM_STATE_H_
