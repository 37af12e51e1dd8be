// Runs the planner on JSON: this is what `cairn plan save|load|bins` answers. Pure. The input is untrusted.
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
  // For people: a few lines.
  std::string summary;
};

// Each takes the text of one JSON object; keys that are not known are ignored, values of a wrong type are errors. An
// object's bytes take a slot of whole 4 KiB in the file; "bytes" in answers is always what was declared.
PlanAnswer PlanSaveJson(std::string_view request);
PlanAnswer PlanLoadJson(std::string_view request);
PlanAnswer PlanBinsJson(std::string_view request);

}  // namespace cairn

#endif  // CAIRN_PLANNER_PLAN_JSON_H_
