// Matches names with placeholders for numbers: layers.$LAYER_ID.experts.*.weight.
#ifndef CAIRN_MAPPING_NAME_PATTERN_H_
#define CAIRN_MAPPING_NAME_PATTERN_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/inlined_vector.h"

namespace cairn::aoa {

enum class Placeholder : uint8_t { kLayerIdOffset, kExpertId, kLayerId, kStar };
inline constexpr size_t kPlaceholders = 4;
std::string_view TagOf(Placeholder placeholder);  // "$LAYER_ID"

// The pieces are views, so the name must outlive the pattern.
class NamePattern {
 public:
  using Captures = std::array<std::string_view, kPlaceholders>;  // empty: not in the pattern

  explicit NamePattern(std::string_view name);

  bool Has(Placeholder placeholder) const { return (present_ >> static_cast<int>(placeholder)) & 1; }
  // Bit i is set if placeholder i occurs.
  uint8_t present() const { return present_; }

  // Returns true if the whole `key` matches. Each placeholder matches one or more digits. A placeholder that occurs
  // twice must match the same digits, except that stars are independent of each other; `captures` has the digits of the
  // last star. If a placeholder is next to a digit or to another placeholder, the digits of a key can be divided in
  // many ways. Then `tries` falls by the bytes that are compared for all ways but the first. At 0 nothing matches any
  // more.
  bool Match(std::string_view key, Captures& captures, uint64_t& tries) const;

  // Appends the name with its placeholders replaced by the digits of `values`. A placeholder without a value stays.
  void Substitute(const Captures& values, std::string& text) const;

  // Returns the name with every run of digits and placeholders replaced by one '\1'. A pattern and all keys that match
  // it have equal skeletons.
  std::string Skeleton() const;

 private:
  struct Piece {
    std::string_view literal;  // the text before the placeholder
    bool has_placeholder = false;
    Placeholder placeholder = Placeholder::kStar;
  };

  bool MatchFrom(size_t piece, std::string_view rest, Captures& captures, uint64_t& tries) const;

  absl::InlinedVector<Piece, 4> pieces_;
  uint8_t present_ = 0;
};

// Appends `key` with every run of digits replaced by '\1'.
void AppendSkeleton(std::string_view key, std::string& skeleton);

// Compares texts of digits, of any length, by their numbers; equal numbers by their texts.
bool NumberLess(std::string_view a, std::string_view b);

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_NAME_PATTERN_H_
