#include "cli/base/command.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/printable.h"
#include "common/base/shell_word.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "store/posix/nested_root.h"

namespace cairn::cli {

namespace {

// Commands that read storage with --root.
constexpr std::array<std::string_view, 6> kReaders = {"list", "show", "jobs", "history", "diff", "verify"};
// Commands that ask a coordinator.
constexpr std::array<std::string_view, 15> kAskers = {"list",   "show", "jobs",   "history",   "diff",
                                                      "verify", "save", "status", "cancel",    "delete",
                                                      "prune",  "pin",  "unpin",  "retention", "untag"};

// Adds `option` to each command in backquotes whose verb is in `verbs` and that has neither --root nor --coordinator.
std::string WithOption(std::string_view text, const std::string& option, std::span<const std::string_view> verbs) {
  constexpr std::string_view kBegin = "`cairn ";
  std::string made;
  while (true) {
    const size_t begin = text.find(kBegin);
    const size_t end = begin == std::string_view::npos ? begin : text.find('`', begin + kBegin.size());
    if (end == std::string_view::npos) return made.append(text);
    const std::string_view arguments = text.substr(begin + kBegin.size(), end - begin - kBegin.size());
    const std::string_view verb = arguments.substr(0, arguments.find(' '));
    const bool said = arguments.find(" --root") != std::string_view::npos ||
                      arguments.find(" --coordinator") != std::string_view::npos;
    made.append(text.substr(0, end));
    if (!said && std::find(verbs.begin(), verbs.end(), verb) != verbs.end()) made.append(" ").append(option);
    made.append("`");
    text.remove_prefix(end + 1);
  }
}

}  // namespace

absl::Status WithNext(const absl::Status& status, const std::string& next) {
  std::map<std::string, std::string> metadata = MetadataOf(status);
  metadata["next"] = next;
  return MakeError(*ReasonOf(status), std::string(status.message()), {metadata.begin(), metadata.end()});
}

absl::Status WithNames(const absl::Status& status, std::string_view name, std::string_view root) {
  const auto named = ParseCheckpointName(name);
  if (HasReason(status, Reason::kBadJobName) && !named.ok()) {
    // A tag may have capital letters, a job may not.
    const size_t job_end = std::min(name.find('@'), name.size());
    const std::string meant =
        absl::StrCat(absl::AsciiStrToLower(absl::string_view(name.data(), job_end)), std::string(name.substr(job_end)));
    if (ParseCheckpointName(meant).ok()) return WithNext(status, absl::StrCat("Did you mean ", meant, "?"));
  }
  if (status.ok() || !named.ok()) return status;
  ErrorMetadata metadata = {{"job", named->job}};
  if (named->step.has_value()) metadata.emplace_back("step", absl::StrCat(*named->step));
  if (root.empty()) return WithMetadata(status, metadata);
  metadata.emplace_back("root", std::string(root));
  const absl::Status with_names = WithMetadata(status, metadata);
  if (HasReason(status, Reason::kJobNotFound) || HasReason(status, Reason::kNotCommitted)) {
    const std::string given(root);
    if (const auto above = RootAbove(given); above.has_value() && !IsRoot(given)) {
      return WithNext(with_names,
                      absl::StrCat("Give --root ", ForShell(*above), ": ", given, " lies within that root."));
    }
  }
  const std::string next = NextActionOf(with_names);
  const std::string here = WithOption(next, absl::StrCat("--root ", ForShell(root)), kReaders);
  return here == next ? with_names : WithNext(with_names, here);
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
  // An option is missing on the command line.
  if (reason == Reason::kBadRequest && MetadataOf(status).contains("option")) return kUsage;
  if (!reason && (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status))) return kUnknown;
  return kFailed;
}

std::string JsonText(const nlohmann::ordered_json& json, int indent) {
  return PrintableJson(json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

int EndOutput(const CommandContext& context, int exit_status) {
  errno = 0;
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  const int error = errno;
  // EPIPE is no failure: a reader such as `head` closes the pipe when it has enough lines.
  if (written || error == EPIPE || exit_status != kDone) return exit_status;
  return ReportError(
      context,
      MakeError(
          error == ENOSPC ? Reason::kNoSpace : Reason::kStorageError,
          absl::StrCat("standard output took only a part of the answer",
                       error == 0 ? "" : absl::StrCat(": ", std::generic_category().message(error))),
          {{"next", "The command itself has succeeded. Redirect its output to another place, and run it again."}}));
}

int ReportError(const CommandContext& context, const absl::Status& status) {
  if (status.ok()) return kDone;
  if (context.json()) {
    const std::string text = JsonText(nlohmann::ordered_json{{"error", ErrorToJson(status)}});
    std::fprintf(stderr, "%s\n", text.c_str());
    return ExitStatusFor(status);
  }
  const bool colour = isatty(STDERR_FILENO) && std::getenv("NO_COLOR") == nullptr;
  const auto reason = ReasonOf(status);
  const std::string name = reason ? std::string(InfoOf(*reason).name) : absl::StatusCodeToString(status.code());
  // An error of another library, or a file's name, may have any bytes. Further lines are indented, so that none of them
  // can look like a line of Cairn itself.
  const auto in_lines = [](const std::string& text) {
    return absl::StrReplaceAll(Printable(text, "\n\t"), {{"\n", "\n    "}});
  };
  std::fprintf(stderr, "%serror:%s %s: %s\n", colour ? "\033[1;31m" : "", colour ? "\033[0m" : "", name.c_str(),
               in_lines(std::string(status.message())).c_str());
  if (!reason) return ExitStatusFor(status);
  std::string next = NextActionOf(status);
  // The next command needs --coordinator too, unless the address comes from the environment.
  const char* everywhere = std::getenv("CAIRN_COORDINATOR");
  if (!context.coordinator.empty() && (everywhere == nullptr || context.coordinator != everywhere)) {
    next = WithOption(next, absl::StrCat("--coordinator ", context.coordinator), kAskers);
  }
  if (!next.empty()) std::fprintf(stderr, "  next: %s\n", in_lines(next).c_str());
  return ExitStatusFor(status);
}

}  // namespace cairn::cli
