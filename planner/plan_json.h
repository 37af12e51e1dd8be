// Runs the planner on JSON and returns the output of `cairn plan save|load|bins`. It is pure. The input is untrusted.
#ifndef CAIRN_PLANNER_PLAN_JSON_H_
#define CAIRN_PLANNER_PLAN_JSON_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace cairn {

struct PlanAnswer {
  // The plan, or {"errors": [{"reason", "name", "ranks", "offset", "shape", "message"}]}.
  nlohmann::ordered_json json;
  bool ok = false;
  std::string summary;
};

// Each of these takes the text of one JSON object. Unknown keys are ignored; values of a wrong type are errors. In a
// file an object takes a slot of a multiple of 4 KiB; "bytes" in an answer is the declared length.
PlanAnswer PlanSaveJson(std::string_view request);
PlanAnswer PlanLoadJson(std::string_view request);
PlanAnswer PlanBinsJson(std::string_view request);

}  // namespace cairn

#endif  // CAIRN_PLANNER_PLAN_JSON_H_
