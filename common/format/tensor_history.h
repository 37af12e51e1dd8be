// How one tensor of a training has changed from save to save. A manifest has it, so a restarted coordinator goes on
// with it, and a training that returns to an older step goes on with that step's.
#ifndef CAIRN_COMMON_FORMAT_TENSOR_HISTORY_H_
#define CAIRN_COMMON_FORMAT_TENSOR_HISTORY_H_

#include <cstdint>

namespace cairn {

struct TensorHistory {
  // In so many saves it had another fingerprint than in the one before.
  uint32_t changes = 0;
  // In so many saves up to this one it has had the fingerprint of the one before.
  uint32_t unchanged = 0;
  // The largest `unchanged` before a change.
  uint32_t longest_unchanged = 0;
  // The largest distance between two saves, as a share of the tensor's norm. Old ones fade.
  float movement = 0;

  // Returns true if it has changed in each save since it is there, and in three at least.
  bool steady() const { return changes >= 3 && unchanged == 0 && longest_unchanged == 0; }
  bool operator==(const TensorHistory&) const = default;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_TENSOR_HISTORY_H_
