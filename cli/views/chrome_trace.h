// Makes what Perfetto and chrome://tracing draw from timelines: Chrome's trace events.
#ifndef CAIRN_CLI_VIEWS_CHROME_TRACE_H_
#define CAIRN_CLI_VIEWS_CHROME_TRACE_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "cairn/v1/timeline.pb.h"

namespace cairn::cli {

// Each operation is a process of the trace, with one track of the whole and one for each rank. Slices are what a rank
// did (X); an arrow (s, f) leads from the rank that others waited for to each that waited. Times are microseconds after
// the begin of the earliest operation. The format is that of the "Trace Event Format" of the Chromium project.
nlohmann::ordered_json ChromeTrace(const std::vector<v1::Timeline>& timelines);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_VIEWS_CHROME_TRACE_H_
