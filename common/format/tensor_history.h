// How one tensor or object of a training has changed from save to save. A manifest has it, so a restarted coordinator
// goes on with it, and a training that returns to an older step goes on with that step's.
#ifndef CAIRN_COMMON_FORMAT_TENSOR_HISTORY_H_
#define CAIRN_COMMON_FORMAT_TENSOR_HISTORY_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace cairn {

// `kEarlier` values are kept, each of which tells apart what the bytes were.
template <size_t kEarlier>
struct ChangeHistory {
  // In so many saves it had another value than in the one before.
  uint32_t changes = 0;
  // In so many saves up to this one it has had the value of the one before.
  uint32_t unchanged = 0;
  // The largest `unchanged` before a change. One that stood still while the rest changed has one more than all have
  // together.
  uint32_t longest_unchanged = 0;
  // The largest distance between two saves, as a share of the tensor's norm. Old ones fade.
  float movement = 0;
  // That distance when it changed last.
  float last_movement = 0;
  // The last values before the present one, newest first. 0: there was none.
  std::array<uint64_t, kEarlier> earlier{};
  // In so many saves it had one of these again.
  uint32_t returns = 0;

  // Returns true if it has changed in each save since it is there, and in three at least.
  bool steady() const { return changes >= 3 && unchanged == 0 && longest_unchanged == 0; }
  bool operator==(const ChangeHistory&) const = default;
};

using TensorHistory = ChangeHistory<1>;
using ObjectHistory = ChangeHistory<3>;

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_TENSOR_HISTORY_H_
