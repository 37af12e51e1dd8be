// Reads the states of a training, and makes of each the manifest that its commit would have.
#ifndef CAIRN_TESTS_TRUST_JUDGE_STATE_READER_H_
#define CAIRN_TESTS_TRUST_JUDGE_STATE_READER_H_

#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"

namespace cairn {

// What is asked of the program.
struct JudgeOrder {
  // What the step builds on, if it is not the step before: a step that was kept under this name; "" is none.
  bool goes_back = false;
  std::string goes_back_to;
  // Set: the step is kept under this name.
  std::string keep;
  // Without files' names and places. It has no histories yet.
  Manifest manifest;
  std::vector<bool> zero_shards;  // by shard: all elements are zeros
};

// Reads one order: a line of JSON, and behind it the bytes of all shards, in the order in which the line has them.
//
//   {"step": 12, "line": 1, "ranks": 2, "plan": "5e1f", "keep": "a", "go_back_to": "b",
//    "tensors": [{"name": "w", "dtype": "float32", "shape": [4, 2],
//                 "shards": [{"rank": 0, "offset": [0, 0], "shape": [2, 2]}, ...]}, ...],
//    "objects": [{"name": "loader", "crc32c": [7]}, ...]}
//
// Tensors and objects come by name. An object has one checksum, or one for each rank. "keep" and "go_back_to" may be
// left out. Shards are summed up as agents and the coordinator do it, so sums are of float32.
// OUT_OF_RANGE at the end of the stream. INVALID_ARGUMENT: the line is no order, or the stream ends within one.
absl::StatusOr<JudgeOrder> ReadOrder(std::istream& in);

}  // namespace cairn

#endif  // CAIRN_TESTS_TRUST_JUDGE_STATE_READER_H_
