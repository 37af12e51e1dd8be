// Describes plans in a few lines for people: their balance, the moves, the heaviest ranks, and the reason.
#ifndef CAIRN_PLANNER_PLAN_SUMMARY_H_
#define CAIRN_PLANNER_PLAN_SUMMARY_H_

#include <string>

#include "planner/load/load_plan.h"
#include "planner/save/save_plan.h"

namespace cairn {

// Returns lines that each end with a newline. `moves` is the policy that the plan was made with.
std::string SummaryOf(const SavePlan& plan, MovePolicy moves);
std::string SummaryOf(const LoadPlan& plan);

}  // namespace cairn

#endif  // CAIRN_PLANNER_PLAN_SUMMARY_H_
