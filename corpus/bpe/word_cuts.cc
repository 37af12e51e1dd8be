#include "corpus/bpe/word_cuts.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/ascii.h"

namespace cairn::corpus {
namespace {

// A joint is known by the last bytes of the left token and the first bytes of the right one, up to three of each.
constexpr size_t kJointBytes = 3;

uint32_t ShapeOf(size_t left, size_t right) { return static_cast<uint32_t>((left - 1) * kJointBytes + right - 1); }

// The bytes before a place, the nearest one lowest, and those behind it. Three on either side must be readable.
struct Joint {
  explicit Joint(const uint8_t* place)
      : before(uint32_t{place[-1]} | uint32_t{place[-2]} << 8 | uint32_t{place[-3]} << 16),
        behind(uint32_t{place[0]} | uint32_t{place[1]} << 8 | uint32_t{place[2]} << 16) {}

  uint64_t Hash(size_t left, size_t right) const {
    const uint64_t key = uint64_t{before & ((1u << 8 * left) - 1)} << 24 | (behind & ((1u << 8 * right) - 1)) |
                         uint64_t{ShapeOf(left, right)} << 48;
    return key * 0x9E3779B97F4A7C15u >> 32;
  }

  uint32_t before, behind;
};

// Returns whether it is worth looking for a cut between these bytes.
bool IsPlaceForCut(uint8_t before, uint8_t behind, WordCuts::Symbols symbols) {
  const bool characters = symbols == WordCuts::Symbols::kCharacters;
  if (behind >= 0x80) return behind >= 0xE0 && (characters || before >= 0x80);
  return characters && !(absl::ascii_isalnum(before) && absl::ascii_isalnum(behind));
}

}  // namespace

WordCuts::WordCuts(std::span<const absl::string_view> bytes_of, std::span<const MergeTable::Merge> merges,
                   Symbols symbols)
    : cuts_(256 * 256), joints_(std::max<size_t>(std::bit_ceil(merges.size() + merges.size() / 4) / 4, 64)) {
  for (size_t pair = 0; pair < cuts_.size(); ++pair) {
    const bool place = IsPlaceForCut(static_cast<uint8_t>(pair >> 8), static_cast<uint8_t>(pair), symbols);
    cuts_[pair] = place ? Cut::kAlways : Cut::kNever;
  }
  for (const MergeTable::Merge& merge : merges) {
    const absl::string_view left = bytes_of[merge.left], right = bytes_of[merge.right];
    if (left.empty() || right.empty()) {
      cuts_.clear();
      return;
    }
    Cut& cut = cuts_[static_cast<uint8_t>(left.back()) << 8 | static_cast<uint8_t>(right.front())];
    if (cut == Cut::kNever) continue;
    cut = Cut::kAsk;
    const size_t before = std::min(left.size(), kJointBytes), behind = std::min(right.size(), kJointBytes);
    uint8_t text[2 * kJointBytes] = {};
    std::memcpy(text + kJointBytes - before, left.data() + left.size() - before, before);
    std::memcpy(text + kJointBytes, right.data(), behind);
    const uint64_t bit = Joint(text + kJointBytes).Hash(before, behind) & (joints_.size() * 64 - 1);
    joints_[bit / 64] |= uint64_t{1} << bit % 64;
    shapes_ |= 1u << ShapeOf(before, behind);
  }
}

// Three bytes before the place and three behind it must be readable.
bool WordCuts::CanJoin(const uint8_t* place) const {
  const Joint joint(place);
  for (size_t left = kJointBytes; left > 0; --left) {
    for (size_t right = kJointBytes; right > 0; --right) {
      if (!(shapes_ >> ShapeOf(left, right) & 1)) continue;
      const uint64_t bit = joint.Hash(left, right) & (joints_.size() * 64 - 1);
      if (joints_[bit / 64] >> bit % 64 & 1) return true;
    }
  }
  return false;
}

size_t WordCuts::PieceEnd(std::string_view word, size_t from) const {
  if (cuts_.empty()) return word.size();
  const auto* const begin = reinterpret_cast<const uint8_t*>(word.data());
  for (size_t at = from + kJointBytes; at + kJointBytes <= word.size(); ++at) {
    const Cut cut = cuts_[begin[at - 1] << 8 | begin[at]];
    if (cut == Cut::kAlways || (cut == Cut::kAsk && !CanJoin(begin + at))) return at;
  }
  return word.size();
}

}  // namespace cairn::corpus
