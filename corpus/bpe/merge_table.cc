#include "corpus/bpe/merge_table.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>

namespace cairn::corpus {
namespace {

// Buckets have 2 ** kBucketBits slots each: at most six or seven pairs on average, which find room soon although four
// fifths of the slots will be taken.
constexpr int kBucketBits = 3;
// With one of ten no two pairs of a bucket meet.
constexpr int kHashes = 64;
// So many places are tried for each slot before the table is given up. Pairs as they come take about a dozen. If many
// buckets were made up to need the same places, each would be tried behind all others.
constexpr size_t kTries = 256;

int BitsOf(uint64_t number) { return static_cast<int>(std::bit_width(number)); }

// Numbers of 0 to count - 1, sorted by their buckets.
struct Buckets {
  Buckets(const std::vector<uint64_t>& hashes, int shift, size_t count) : begins(count + 1), order(hashes.size()) {
    for (const uint64_t hash : hashes) ++begins[(hash >> shift) + 1];
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    std::vector<uint32_t> next(begins.begin(), begins.end() - 1);
    for (uint32_t i = 0; i < hashes.size(); ++i) order[next[hashes[i] >> shift]++] = i;
  }
  std::span<const uint32_t> Of(size_t bucket) const {
    return std::span(order).subspan(begins[bucket], begins[bucket + 1] - begins[bucket]);
  }

  std::vector<uint32_t> begins, order;
};

// Returns whether two pairs of a bucket have the same slot, by however much they are displaced.
bool AnyMeet(const std::vector<uint64_t>& hashes, const Buckets& buckets, size_t count, uint64_t slot_mask) {
  std::vector<uint64_t> slots;
  for (size_t bucket = 0; bucket < count; ++bucket) {
    slots.clear();
    for (const uint32_t pair : buckets.Of(bucket)) slots.push_back(hashes[pair] & slot_mask);
    std::sort(slots.begin(), slots.end());
    if (std::adjacent_find(slots.begin(), slots.end()) != slots.end()) return true;
  }
  return false;
}

}  // namespace

MergeTable::MergeTable(std::span<const Merge> merges, uint32_t most_id) {
  uint32_t most_rank = 0;
  for (const Merge& merge : merges) most_rank = std::max(most_rank, merge.rank);
  // The number of all ones is no id and no rank.
  id_bits_ = BitsOf(uint64_t{most_id} + 1);
  value_bits_ = id_bits_ + BitsOf(uint64_t{most_rank} + 1);
  pair_mask_ = id_bits_ < 32 ? (uint64_t{1} << 2 * id_bits_) - 1 : ~uint64_t{0};
  limit_ = (uint64_t{most_rank} + 1) << id_bits_;
  // With a slot for each pair that there could be, the hash alone is perfect.
  const int most = 2 * id_bits_, least = std::min(BitsOf(merges.size() + merges.size() / 4), most);
  size_t tries = kTries << least;
  for (int slot_bits = least; slot_bits <= std::min(least + 2, most); ++slot_bits) {
    if (2 * id_bits_ - slot_bits + value_bits_ > 63) continue;
    for (uint64_t i = 0; i < kHashes && tries > 0; ++i) {
      factor_ = (0xD1B54A32D192ED03u + i * 0x9E3779B97F4A7C16u) | 1;
      if (Fill(merges, slot_bits, tries)) return;
    }
  }
  slots_.clear();  // too large, or made up so that none of the hashes does
}

bool MergeTable::Fill(std::span<const Merge> merges, int slot_bits, size_t& tries) {
  slot_bits_ = slot_bits;
  slot_mask_ = (uint64_t{1} << slot_bits) - 1;
  // What a slot does not tell has to tell the bucket.
  const int bucket_bits = std::clamp(slot_bits - kBucketBits, 0, 2 * id_bits_ - slot_bits);
  bucket_shift_ = 2 * id_bits_ - bucket_bits;
  std::vector<uint64_t> hashes;
  hashes.reserve(merges.size());
  for (const Merge& merge : merges) hashes.push_back(Hash(merge.left, merge.right));
  const size_t count = size_t{1} << bucket_bits;
  const Buckets buckets(hashes, bucket_shift_, count);
  if (AnyMeet(hashes, buckets, count, slot_mask_)) return false;
  std::vector<uint32_t> largest_first(count);
  std::iota(largest_first.begin(), largest_first.end(), 0);
  std::sort(largest_first.begin(), largest_first.end(),
            [&](uint32_t a, uint32_t b) { return buckets.Of(a).size() > buckets.Of(b).size(); });
  slots_.assign(slot_mask_ + 1, kFree);
  displacements_.assign(count, 0);
  for (const uint32_t bucket : largest_first) {
    const std::span<const uint32_t> pairs = buckets.Of(bucket);
    const auto slot_of = [&](uint32_t pair, uint64_t by) -> uint64_t& {
      return slots_[(hashes[pair] & slot_mask_) ^ by];
    };
    const auto fits = [&](uint64_t by) {
      return std::all_of(pairs.begin(), pairs.end(), [&](uint32_t pair) { return slot_of(pair, by) == kFree; });
    };
    uint64_t by = 0;
    for (; !fits(by); ++by) {
      if (by == slot_mask_ || --tries == 0) return false;
    }
    for (const uint32_t pair : pairs) {
      uint64_t& slot = slot_of(pair, by);
      slot = hashes[pair] >> slot_bits << value_bits_ | uint64_t{merges[pair].rank} << id_bits_ | merges[pair].result;
    }
    displacements_[bucket] = static_cast<uint32_t>(by);
  }
  return true;
}

}  // namespace cairn::corpus
