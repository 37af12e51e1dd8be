#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "planner/plan_json.h"

// Any text must get an answer: a plan, or errors. A load of an accepted save must read each byte once.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (auto* plan : {cairn::PlanSaveJson, cairn::PlanLoadJson, cairn::PlanBinsJson}) {
    const cairn::PlanAnswer answer = plan(text);
    if (answer.ok == answer.json.contains("errors")) std::abort();
    if (answer.json.contains("read_bytes") && answer.json["read_bytes"] != answer.json["unique_bytes"]) std::abort();
  }
  return 0;
}
