// How a manifest looks: as JSON with stable keys, and as tables.
#ifndef CAIRN_CLI_MANIFEST_VIEW_H_
#define CAIRN_CLI_MANIFEST_VIEW_H_

#include <nlohmann/json.hpp>
#include <string>

#include "common/format/manifest.h"

namespace cairn::cli {

// "2026-03-01T12:00:00Z"
std::string CommitTimeText(const Manifest& manifest);

// {"job", "step", "state", "attempt", "commit_time", "bytes", "world_size"}; bytes are those of the files.
nlohmann::ordered_json SummaryToJson(const Manifest& manifest);
// The summary with "data_directory", "tensors", "objects", "aliases", "files".
nlohmann::ordered_json ManifestToJson(const Manifest& manifest, const std::string& root);

void PrintSummary(const Manifest& manifest, const std::string& root);
void PrintTensors(const Manifest& manifest);
// Which rank wrote what where.
void PrintFiles(const Manifest& manifest);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_MANIFEST_VIEW_H_
