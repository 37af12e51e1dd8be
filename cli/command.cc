#include "cli/command.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "common/status/reason.h"
#include "common/storage/checkpoint_path.h"

namespace cairn::cli {

absl::Status WithNames(const absl::Status& status, std::string_view name, std::string_view root) {
  const auto named = ParseCheckpointName(name);
  if (status.ok() || !named.ok()) return status;
  ErrorMetadata metadata = {{"job", named->job}};
  if (named->step.has_value()) metadata.emplace_back("step", absl::StrCat(*named->step));
  if (!root.empty()) metadata.emplace_back("root", std::string(root));
  return WithMetadata(status, metadata);
}

absl::Status CheckJobArgument(const std::string& text) {
  const size_t at = text.find('@');
  if (at == std::string::npos || !ParseCheckpointName(text).ok()) return CheckJobName(text);
  const std::string job = text.substr(0, at);
  return MakeError(
      Reason::kBadJobName, absl::StrCat("\"", text, "\" names a checkpoint, and this command takes a job"),
      {{"job", job}, {"next", absl::StrCat("Give the job alone, ", job, "; `cairn show ", text, "` shows the step.")}});
}

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
  if (const auto metadata = MetadataOf(status); metadata.contains("outcome") && metadata.at("outcome") == "unknown") {
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
