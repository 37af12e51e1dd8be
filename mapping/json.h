// Reads the request of `cairn aoa resolve` from JSON and writes its answer. It builds no tree of the request, and
// writes the answer piece by piece while it is computed. So a request of 16 MiB takes only a few times as much memory.
#ifndef CAIRN_MAPPING_JSON_H_
#define CAIRN_MAPPING_JSON_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "mapping/mapping.h"

namespace cairn::aoa {

struct Request {
  Config config;
  std::vector<ShardDesc> source;
  std::optional<std::vector<ShardDesc>> destination;
  std::vector<ShardDesc> queries;

  std::optional<std::span<const ShardDesc>> destination_span() const {
    if (!destination.has_value()) return std::nullopt;
    return std::span<const ShardDesc>(*destination);
  }

  // The memory into which the views above point.
  struct Buffers;
  std::shared_ptr<const Buffers> buffers;
};

// Reads a request; the result owns `text`. INVALID_ARGUMENT (BAD_REQUEST): it is not JSON, or not of the documented
// form; the message names the member ("source[3].dtype"). Unknown members are ignored, except members of aoa_config
// that look like misspelt ones.
absl::StatusOr<Request> ParseRequest(std::string text);

// Reads a mapping alone: {"aoa_statements": [...], "aoa_config_reverse": false, ...}, or a plain list of statements.
absl::StatusOr<Config> ParseConfig(std::string_view text);

using Sink = absl::FunctionRef<void(std::string_view)>;

// Writes {"stages", "outputs", "answers"} piece by piece. Errors of single queries are part of the answer.
void WriteAnswer(const MappedState& mapped, std::span<const ShardDesc> queries, Sink sink);

// Writes {"error": {...}, "errors": [{...} ...], "error_count": N}: the first error, then all of them. If `errors` is
// empty, it writes only `status`.
void WriteFailure(const absl::Status& status, std::span<const MappingError> errors, size_t total, Sink sink);

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_JSON_H_
