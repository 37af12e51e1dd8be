// Keeps many lists of places in the words. Each list is made once, with its final length. The memory of a list that is
// given up serves new ones.
#ifndef CAIRN_CORPUS_BPE_PLACE_LISTS_H_
#define CAIRN_CORPUS_BPE_PLACE_LISTS_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "corpus/bpe/huge_pages.h"

namespace cairn::corpus {

// A place is the number of a cell. A list's number says where it lies, and has 32 bits. Not thread-safe.
class PlaceLists {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  PlaceLists() = default;
  ~PlaceLists() {
    HugePageAllocator<uint32_t> allocator;
    for (const auto& [memory, count] : storage_) allocator.deallocate(memory, count);
  }
  PlaceLists(const PlaceLists&) = delete;
  PlaceLists& operator=(const PlaceLists&) = delete;

  // Makes a list of `size` places, which are not yet filled. Returns kNone if 32 bits can number no more. Other lists
  // stay where they are.
  uint32_t Add(uint32_t size) {
    const uint64_t needed = uint64_t{size} + 1;
    if (needed > room_.size && !MakeRoom(needed)) return kNone;
    const auto list = static_cast<uint32_t>(room_.begin);
    room_.begin += needed;
    room_.size -= needed;
    *At(list) = size;
    return list;
  }

  // Gives up a list.
  void Free(uint32_t list) { Keep({list, uint64_t{*At(list)} + 1}); }

  std::span<uint32_t> Get(uint32_t list) const {
    uint32_t* const size = At(list);
    return {size + 1, *size};
  }

 private:
  static constexpr uint64_t kChunk = uint64_t{1} << 19;
  static constexpr uint64_t kWorthKeeping = 512;
  static constexpr size_t kTries = 8;

  // Consecutive places by number, which are consecutive in memory too.
  struct Room {
    uint64_t begin = 0;
    uint64_t size = 0;
  };

  uint32_t* At(uint32_t list) const { return chunks_[list / kChunk] + list % kChunk; }

  void Keep(Room room) {
    if (room.size >= kWorthKeeping) free_.push_back(room);
  }

  // Finds room for `needed` places: the room that was given up last, else new memory.
  bool MakeRoom(uint64_t needed) {
    Keep(std::exchange(room_, {}));
    for (size_t i = free_.size(), tries = 0; i > 0 && tries < kTries; --i, ++tries) {
      if (free_[i - 1].size < needed) continue;
      room_ = free_[i - 1];
      free_[i - 1] = free_.back();
      free_.pop_back();
      return true;
    }
    const uint64_t chunks = (needed + kChunk - 1) / kChunk;
    if (chunks_.size() + chunks > (uint64_t{1} << 32) / kChunk - 1) return false;
    HugePageAllocator<uint32_t> allocator;
    uint32_t* const memory = allocator.allocate(chunks * kChunk);  // memory is taken only when it is used
    storage_.emplace_back(memory, chunks * kChunk);
    room_ = {chunks_.size() * kChunk, chunks * kChunk};
    for (uint64_t i = 0; i < chunks; ++i) chunks_.push_back(memory + i * kChunk);
    return true;
  }

  std::vector<std::pair<uint32_t*, size_t>> storage_;
  std::vector<uint32_t*> chunks_;
  std::vector<Room> free_;
  Room room_;  // the next list goes here
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_PLACE_LISTS_H_
