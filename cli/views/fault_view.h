// Shows the faults that a verification found, as JSON with stable keys and as a table.
#ifndef CAIRN_CLI_VIEWS_FAULT_VIEW_H_
#define CAIRN_CLI_VIEWS_FAULT_VIEW_H_

#include <nlohmann/json.hpp>

#include "cli/base/terminal.h"
#include "store/read/verify.h"

namespace cairn::cli {

// Returns [{"reason", "file", "offset", "tensor", "message"}].
nlohmann::ordered_json FaultsToJson(const VerifyReport& report);

// Has the columns FILE OFFSET TENSOR REASON WHAT.
Table FaultTable(const VerifyReport& report);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_VIEWS_FAULT_VIEW_H_
