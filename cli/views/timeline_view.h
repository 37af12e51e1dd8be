// Fetches timelines from the coordinator, and shows them as JSON with stable keys.
#ifndef CAIRN_CLI_VIEWS_TIMELINE_VIEW_H_
#define CAIRN_CLI_VIEWS_TIMELINE_VIEW_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "cairn/v1/monitoring_service.pb.h"
#include "cli/client/coordinator_client.h"

namespace cairn::cli {

// Returns the timelines that match the request, from all pages, newest first.
absl::StatusOr<std::vector<v1::Timeline>> FetchTimelines(CoordinatorClient& client, v1::ListTimelinesRequest request);

// Returns {"id", "kind", "step", "attempt", "begin_time", "duration", "bytes", "world_size", "error", "spans", "ranks",
// "ranks_left_out"}. A span is {"phase", "begin", "end", "awaited_ranks"}; times are in seconds since "begin_time".
nlohmann::ordered_json TimelineToJson(const v1::Timeline& timeline);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_VIEWS_TIMELINE_VIEW_H_
