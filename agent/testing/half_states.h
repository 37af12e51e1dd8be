// A state that two ranks hold by halves, and the plan by which both load it whole.
#ifndef CAIRN_AGENT_TESTING_HALF_STATES_H_
#define CAIRN_AGENT_TESTING_HALF_STATES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "agent/session/rank_layout.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/plan.pb.h"

namespace cairn::testing {

// Returns the half of this rank, which is 0 or 1: it has rows of the first two tensors and columns of the third.
RankLayoutPtr HalfLayout(uint32_t rank);

// The whole state, as one rank holds it after the load.
RankLayoutPtr WholeLayout();

// The plan "load-plan" of a rank that reads its own file, which was saved with the items in the order 1, 0, 2. Both
// ranks take everything. `written` is what the rank's save has told of the file. The file's data is cut into rounds at
// `cuts`.
v1::ReadPlan HalfReadPlan(uint32_t rank, const v1::FileResult& written,
                          std::vector<uint64_t> cuts = {0, 600'000, 1'200'000});

// Expects that the items of WholeLayout have these contents after a load, if rank r has saved Contents(HalfLayout(r),
// "r").
void ExpectWhole(const std::vector<std::string>& target);

}  // namespace cairn::testing

#endif  // CAIRN_AGENT_TESTING_HALF_STATES_H_
