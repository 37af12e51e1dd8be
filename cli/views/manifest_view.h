// Shows a manifest as JSON with stable keys, and as tables.
#ifndef CAIRN_CLI_VIEWS_MANIFEST_VIEW_H_
#define CAIRN_CLI_VIEWS_MANIFEST_VIEW_H_

#include <nlohmann/json.hpp>
#include <string>

#include "common/format/manifest.h"

namespace cairn::cli {

// Returns for example "2026-03-01T12:00:00Z".
std::string CommitTimeText(const Manifest& manifest);

// Returns {"job", "step", "state", "attempt", "commit_time", "bytes", "world_size"}; "bytes" is the size of all files.
nlohmann::ordered_json SummaryToJson(const Manifest& manifest);
// Returns the summary with "data_directory", "tensors", "objects", "aliases" and "files".
nlohmann::ordered_json ManifestToJson(const Manifest& manifest, const std::string& root);

void PrintSummary(const Manifest& manifest, const std::string& root);
void PrintTensors(const Manifest& manifest);
// Prints the objects by name, at most 1000 lines; the JSON has all. A per-rank object takes one line.
void PrintObjects(const Manifest& manifest);
// Prints the files, and which rank wrote which of them.
void PrintFiles(const Manifest& manifest);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_VIEWS_MANIFEST_VIEW_H_
