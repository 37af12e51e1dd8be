#include "cli/command.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "common/base/printable.h"
#include "common/status/reason.h"

namespace cairn::cli {

nlohmann::ordered_json ErrorToJson(const absl::Status& status) {
  nlohmann::ordered_json json;
  const auto reason = ReasonOf(status);
  json["code"] = absl::StatusCodeToString(status.code());
  json["reason"] = reason ? std::string(InfoOf(*reason).name) : "UNKNOWN";
  json["message"] = std::string(status.message());
  json["metadata"] = MetadataOf(status);
  return json;
}

int ExitStatusFor(const absl::Status& status) {
  if (status.ok()) return kDone;
  const auto reason = ReasonOf(status);
  if (reason == Reason::kInterrupted) return kInterrupted;
  if (reason == Reason::kCoordinatorUnreachable || reason == Reason::kAgentUnreachable || reason == Reason::kTimedOut ||
      reason == Reason::kStorageStalled) {
    return kUnknown;
  }
  // The command line lacks an option.
  if (reason == Reason::kBadRequest && MetadataOf(status).contains("option")) return kUsage;
  if (!reason && (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status))) return kUnknown;
  return kFailed;
}

int ReportError(const CommandContext& context, const absl::Status& status) {
  if (status.ok()) return kDone;
  if (context.json()) {
    const std::string text = nlohmann::ordered_json{{"error", ErrorToJson(status)}}.dump(
        2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    std::fprintf(stderr, "%s\n", text.c_str());
    return ExitStatusFor(status);
  }
  const bool colour = isatty(STDERR_FILENO) && std::getenv("NO_COLOR") == nullptr;
  const auto reason = ReasonOf(status);
  const std::string name = reason ? std::string(InfoOf(*reason).name) : absl::StatusCodeToString(status.code());
  // An error of another library may have any bytes.
  std::fprintf(stderr, "%serror:%s %s: %s\n", colour ? "\033[1;31m" : "", colour ? "\033[0m" : "", name.c_str(),
               Printable(std::string(status.message()), "\n\t").c_str());
  if (reason) std::fprintf(stderr, "  next: %s\n", Printable(NextActionOf(status), "\n\t").c_str());
  return ExitStatusFor(status);
}

}  // namespace cairn::cli
