// Converts timelines to Chrome's trace events, which Perfetto and chrome://tracing draw.
#ifndef CAIRN_CLI_VIEWS_CHROME_TRACE_H_
#define CAIRN_CLI_VIEWS_CHROME_TRACE_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "cairn/v1/timeline.pb.h"

namespace cairn::cli {

// Each operation is a process of the trace, with one track for the whole operation and one for each rank. A slice (X)
// is an activity of a rank. An arrow (s, f) leads from a rank that others waited for to each rank that waited. Times
// are microseconds since the beginning of the earliest operation. The format is Chromium's "Trace Event Format".
nlohmann::ordered_json ChromeTrace(const std::vector<v1::Timeline>& timelines);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_VIEWS_CHROME_TRACE_H_
