// The names of optimizer states in Paddle: the name of the weight and a suffix. Statements name weights only; states
// follow their weight.
#ifndef CAIRN_MAPPING_STATE_KEY_H_
#define CAIRN_MAPPING_STATE_KEY_H_

#include <array>
#include <cstddef>
#include <string_view>

namespace cairn::aoa {

enum class StateKind : unsigned char {
  kWeight,
  kElementwise,  // .w_0 (master weight), .moment1_0, .moment2_0: as many elements as the weight
  kScalar,       // .beta1_pow_acc_0, .beta2_pow_acc_0: one number per weight
};

inline constexpr std::array<std::string_view, 5> kStateSuffixes = {".w_0", ".moment1_0", ".moment2_0",
                                                                   ".beta1_pow_acc_0", ".beta2_pow_acc_0"};

struct StateKey {
  std::string_view weight;
  std::string_view suffix;  // with its dot; empty for a weight
  StateKind kind = StateKind::kWeight;
  size_t suffix_index = 0;  // index into kStateSuffixes; not used for a weight
};

inline StateKey SplitStateKey(std::string_view key) {
  if (!key.ends_with("_0")) return {key, {}, StateKind::kWeight, 0};
  for (size_t i = 0; i < kStateSuffixes.size(); ++i) {
    const std::string_view suffix = kStateSuffixes[i];
    if (!key.ends_with(suffix)) continue;
    return {key.substr(0, key.size() - suffix.size()), key.substr(key.size() - suffix.size()),
            i < 3 ? StateKind::kElementwise : StateKind::kScalar, i};
  }
  return {key, {}, StateKind::kWeight, 0};
}

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_STATE_KEY_H_
