#include "corpus/sampler/random_state.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace cairn::corpus {
namespace {

constexpr size_t kFar = 397;   // the distance of the word that each step takes in
constexpr size_t kAhead = 96;  // so many places are known, and fetched, before their swaps
constexpr size_t kReport = 1 << 16;

// Four words. Each step of the generator reads only words at least 227 places away from the one that it writes, apart
// from the two that it mixes, so four steps go side by side.
using Lanes = uint32_t __attribute__((vector_size(16)));

Lanes Load(const uint32_t* words) {
  Lanes lanes;
  std::memcpy(&lanes, words, sizeof lanes);
  return lanes;
}

void Store(uint32_t* words, Lanes lanes) { std::memcpy(words, &lanes, sizeof lanes); }

template <typename Word>
Word Mix(Word upper, Word lower, Word far) {
  const Word both = (upper & 0x80000000u) | (lower & 0x7fffffffu);
  return far ^ (both >> 1) ^ (-(lower & 1u) & 0x9908b0dfu);
}

Lanes Temper(Lanes word) {
  word ^= word >> 11;
  word ^= (word << 7) & 0x9d2c5680u;
  word ^= (word << 15) & 0xefc60000u;
  return word ^ (word >> 18);
}

}  // namespace

RandomState::RandomState(uint32_t seed) {
  state_[0] = seed;
  for (uint32_t i = 1; i < kWords; ++i) {
    state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  }
}

void RandomState::Refill() {
  uint32_t* const words = state_.data();
  size_t i = 0;
  const auto mix_until = [&](size_t end, ptrdiff_t far) {
    for (; i + 4 <= end; i += 4) Store(words + i, Mix(Load(words + i), Load(words + i + 1), Load(words + i + far)));
    for (; i < end; ++i) words[i] = Mix(words[i], words[i + 1], words[i + far]);
  };
  mix_until(kWords - kFar, kFar);
  mix_until(kWords - 1, static_cast<ptrdiff_t>(kFar) - static_cast<ptrdiff_t>(kWords));
  words[kWords - 1] = Mix(words[kWords - 1], words[0], words[kFar - 1]);
  for (i = 0; i < kWords; i += 4) Store(draws_.data() + i, Temper(Load(words + i)));
  next_ = 0;
}

uint32_t RandomState::Next() {
  if (next_ == kWords) Refill();
  return draws_[next_++];
}

uint64_t RandomState::PlaceUpTo(uint64_t most) {
  const uint64_t mask = std::bit_ceil(most + 1) - 1;
  for (;;) {
    const uint64_t high = most > UINT32_MAX ? Next() : 0;
    const uint64_t place = (high << 32 | Next()) & mask;
    if (place <= most) return place;
  }
}

template <typename T>
bool RandomState::ShuffleAny(std::span<T> values, const std::atomic<bool>& stop, std::atomic<uint64_t>* done) {
  // Beyond 2^32 values the draws are so many that their memory accesses still dominate, but such arrays are rare.
  constexpr uint64_t kBelow32Bits = uint64_t{1} << 32;
  while (values.size() > kBelow32Bits) {
    const size_t last = values.size() - 1;
    std::swap(values[last], values[PlaceUpTo(last)]);
    values = values.first(last);
    if (last % kReport == 0) {
      if (done != nullptr) done->fetch_add(kReport);
      if (stop.load()) return false;
    }
  }
  return ShuffleBelow32Bits(values, stop, done);
}

template <typename T>
bool RandomState::ShuffleBelow32Bits(std::span<T> values, const std::atomic<bool>& stop, std::atomic<uint64_t>* done) {
  if (values.size() < 2) return true;
  T* const array = values.data();
  std::array<uint32_t, kWords + kAhead> places;  // for the last places of the array that have none yet, downwards
  size_t known = 0;
  uint32_t unknown = static_cast<uint32_t>(values.size() - 1);  // the next place of the array to draw for
  uint32_t unswapped = unknown;
  uint64_t unreported = 0;
  while (unswapped > 0) {
    // Draws that are too large are overwritten by the next one: there is no branch that the processor could guess
    // wrong.
    while (unknown > 0 && known <= kAhead) {
      if (next_ == kWords) Refill();
      size_t made = known;
      while (unknown > 0 && next_ < kWords) {
        const uint32_t mask = static_cast<uint32_t>(std::bit_ceil(uint64_t{unknown} + 1) - 1);
        // Each draw settles at most one place, so the mask stays for this many.
        const size_t same = std::min<size_t>(kWords - next_, unknown - mask / 2);
        for (size_t i = 0; i < same; ++i) {
          const uint32_t place = draws_[next_ + i] & mask;
          places[made] = place;
          const uint32_t fits = place <= unknown;
          made += fits;
          unknown -= fits;
        }
        next_ += same;
      }
      known = made;
    }
    const size_t swaps = unknown > 0 ? known - kAhead : known;
    for (size_t i = 0; i < swaps; ++i, --unswapped) {
      __builtin_prefetch(array + places[std::min(i + kAhead, known - 1)], 1, 2);
      std::swap(array[unswapped], array[places[i]]);
    }
    std::copy(places.begin() + swaps, places.begin() + known, places.begin());
    known -= swaps;
    unreported += swaps;
    if (unreported >= kReport) {
      if (done != nullptr) done->fetch_add(unreported);
      unreported = 0;
      if (stop.load()) return false;
    }
  }
  if (done != nullptr) done->fetch_add(unreported + 1);
  return true;
}

bool RandomState::Shuffle(std::span<uint32_t> values, const std::atomic<bool>& stop, std::atomic<uint64_t>* done) {
  return ShuffleAny(values, stop, done);
}

bool RandomState::Shuffle(std::span<int64_t> values, const std::atomic<bool>& stop, std::atomic<uint64_t>* done) {
  return ShuffleAny(values, stop, done);
}

}  // namespace cairn::corpus
