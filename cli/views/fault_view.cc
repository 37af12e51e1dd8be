#include "cli/views/fault_view.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn::cli {

nlohmann::ordered_json FaultsToJson(const VerifyReport& report) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const VerifyFault& fault : report.faults) {
    json.push_back({{"reason", std::string(InfoOf(fault.reason).name)},
                    {"file", fault.file},
                    {"offset", fault.offset},
                    {"tensor", fault.tensor},
                    {"message", fault.message}});
  }
  return json;
}

Table FaultTable(const VerifyReport& report) {
  Table table({"FILE", "OFFSET", "TENSOR", "REASON", "WHAT"});
  for (const VerifyFault& fault : report.faults) {
    table.Add(
        {fault.file, absl::StrCat(fault.offset), fault.tensor, std::string(InfoOf(fault.reason).name), fault.message},
        Colour::kRed);
  }
  return table;
}

}  // namespace cairn::cli
