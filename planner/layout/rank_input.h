// The input of one rank to a plan.
#ifndef CAIRN_PLANNER_LAYOUT_RANK_INPUT_H_
#define CAIRN_PLANNER_LAYOUT_RANK_INPUT_H_

#include <string>
#include <string_view>

namespace cairn {

struct RankInput {
  int rank = 0;
  // The name of its machine.
  std::string node;
  // A serialized cairn.v1.Layout and its digest. Ranks with equal digests share one layout: only the bytes of one of
  // them are read, and only during the call.
  std::string_view layout;
  std::string_view layout_digest;
};

}  // namespace cairn

#endif  // CAIRN_PLANNER_LAYOUT_RANK_INPUT_H_
