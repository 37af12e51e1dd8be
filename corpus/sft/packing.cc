#include "corpus/sft/packing.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/sampler/random_state.h"

namespace cairn::corpus {
namespace {

// Finds the first pack that has room. It holds the most room of any pack in each half, quarter and so on of the packs.
class FirstFit {
 public:
  explicit FirstFit(uint32_t pack_size) : pack_size_(pack_size) {}

  // Puts a sample into a pack, and returns which.
  uint32_t Place(uint32_t length) {
    uint32_t pack = 0;
    if (packs_ == 0 || most_[1] < length) {
      if (packs_ == width_) Widen();
      pack = packs_++;
      Set(pack, pack_size_ - length);
      return pack;
    }
    size_t node = 1;
    while (node < width_) node = 2 * node + (most_[2 * node] < length ? 1 : 0);
    pack = static_cast<uint32_t>(node - width_);
    Set(pack, most_[node] - length);
    return pack;
  }
  uint32_t packs() const { return packs_; }
  uint32_t TokensIn(uint32_t pack) const { return pack_size_ - most_[width_ + pack]; }

 private:
  void Set(uint32_t pack, uint32_t room) {
    size_t node = width_ + pack;
    most_[node] = room;
    while (node > 1) {
      node /= 2;
      most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
    }
  }
  void Widen() {
    std::vector<uint32_t> wider(width_ * 4, 0);
    std::copy(most_.begin() + static_cast<ptrdiff_t>(width_), most_.end(),
              wider.begin() + static_cast<ptrdiff_t>(width_ * 2));
    width_ *= 2;
    most_ = std::move(wider);
    for (size_t node = width_ - 1; node >= 1; --node) most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
  }

  const uint32_t pack_size_;
  uint32_t packs_ = 0;
  size_t width_ = 1;  // a power of two
  std::vector<uint32_t> most_{0,
                              0};  // of the node's packs; nodes 2 n and 2 n + 1 are below n, and packs from width_ on
};

// Returns where the group of each value begins if values are put in order, and one more for the end.
std::vector<uint32_t> GroupsOf(std::span<const uint32_t> values, size_t groups) {
  std::vector<uint32_t> firsts(groups + 1, 0);
  for (const uint32_t value : values) ++firsts[value + 1];
  std::partial_sum(firsts.begin(), firsts.end(), firsts.begin());
  return firsts;
}

}  // namespace

absl::StatusOr<Packing> PackSamples(std::span<const uint32_t> lengths, uint32_t pack_size, PackOrder order,
                                    uint32_t seed, const std::atomic<bool>* stop) {
  if (lengths.empty()) {
    return MakeError(Reason::kBadRequest, "there is no sample to pack",
                     {{"next", "Look at what was left out, and whether the keys are those of the lines."}});
  }
  if (lengths.size() > UINT32_MAX) {
    return MakeError(Reason::kBadRequest, absl::StrCat(lengths.size(), " samples are more than 2^32 - 1"),
                     {{"next", "Pack several parts of the corpus."}});
  }
  static const std::atomic<bool> never = false;
  const std::atomic<bool>& stopped = stop == nullptr ? never : *stop;
  const auto interrupted = [] { return MakeError(Reason::kInterrupted, "interrupted"); };

  // The samples by their length, and in their order.
  const std::vector<uint32_t> by_length = GroupsOf(lengths, size_t{pack_size} + 1);
  std::vector<uint32_t> waiting(lengths.size());
  {
    std::vector<uint32_t> next = by_length;
    for (size_t i = 0; i < lengths.size(); ++i) waiting[next[lengths[i]]++] = static_cast<uint32_t>(i);
  }
  std::vector<uint32_t> given;  // lengths in the order in which they are placed
  given.reserve(lengths.size());
  for (uint32_t length = 0; length <= pack_size; ++length) {
    given.insert(given.end(), by_length[length + 1] - by_length[length], length);
  }
  RandomState random(seed);
  if (order == PackOrder::kDecreasing) {
    std::reverse(given.begin(), given.end());
  } else if (!random.Shuffle(std::span(given), stopped, nullptr)) {
    return interrupted();
  }

  Packing result;
  std::vector<uint32_t> pack_of(given.size());
  FirstFit packs(pack_size);
  for (size_t i = 0; i < given.size(); ++i) {
    pack_of[i] = packs.Place(given[i]);
    if (i % 65536 == 0 && stopped) return interrupted();
  }
  result.firsts = GroupsOf(pack_of, packs.packs());
  result.samples.resize(given.size());  // lengths at first
  {
    std::vector<uint32_t> next = result.firsts;
    for (size_t i = 0; i < given.size(); ++i) result.samples[next[pack_of[i]]++] = given[i];
  }
  // Each pack gets a random one of the samples of one length, because one is as good as another.
  std::vector<uint32_t> left(pack_size + size_t{1});
  for (uint32_t length = 0; length <= pack_size; ++length) {
    left[length] = by_length[length + 1];
    const auto same = std::span(waiting).subspan(by_length[length], by_length[length + 1] - by_length[length]);
    if (!random.Shuffle(same, stopped, nullptr)) return interrupted();
    if (!same.empty()) result.longest_sample = length;
    result.tokens += uint64_t{length} * same.size();
  }
  for (uint32_t& sample : result.samples) sample = waiting[--left[sample]];

  result.shortest_pack = pack_size;
  for (uint32_t pack = 0; pack < packs.packs(); ++pack) {
    result.shortest_pack = std::min<uint64_t>(result.shortest_pack, packs.TokensIn(pack));
    result.most_samples = std::max<uint64_t>(result.most_samples, result.firsts[pack + 1] - result.firsts[pack]);
  }
  return result;
}

}  // namespace cairn::corpus
