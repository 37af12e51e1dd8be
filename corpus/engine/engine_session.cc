#include "corpus/engine/engine_session.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/version_text.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::corpus {
namespace {

constexpr char kDriver[] =
#include "corpus/engine/engine_driver_text.inc"
    ;

constexpr size_t kMostAnswerBytes = size_t{64} << 20;
constexpr size_t kMostFailuresNamed = 3;
constexpr size_t kMostOfAMessage = 200;
constexpr absl::Duration kEndOfTasks = absl::Seconds(20);
constexpr absl::Duration kConnect = absl::Minutes(5);

std::string TextOf(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

// The error of tasks that failed.
absl::Status ErrorOf(const std::vector<nlohmann::json>& failures, const std::vector<EngineTask>& tasks) {
  std::vector<std::string> told;
  for (const nlohmann::json& failure : failures) {
    if (told.size() == kMostFailuresNamed) break;
    const auto number = failure["failed"].get<size_t>();
    const std::string node = TextOf(failure, "node");
    told.push_back(absl::StrCat(tasks[number].name, node.empty() ? "" : absl::StrCat(" on ", node), ": ",
                                TextOf(failure, "message").substr(0, kMostOfAMessage)));
  }
  const std::string more = failures.size() > told.size() ? absl::StrCat("; ", failures.size(), " failed in all") : "";
  const nlohmann::json& first = failures.front();
  ErrorMetadata metadata;
  if (const std::string next = TextOf(first, "next"); !next.empty()) metadata.emplace_back("next", next);
  return MakeError(ReasonFromName(TextOf(first, "reason")).value_or(Reason::kTransportFailed),
                   absl::StrCat(absl::StrJoin(told, "; "), more), metadata);
}

}  // namespace

absl::StatusOr<std::unique_ptr<EngineSession>> EngineSession::Start(const EngineChoice& choice,
                                                                    const std::atomic<bool>& stop) {
  PythonProcess::Options options;
  options.program = kDriver;
  options.takes_frames = true;
  options.name = absl::StrCat("the process that runs ", choice.engine);
  options.task = absl::StrCat("runs ", choice.engine);
  options.package = choice.engine == "spark" ? "pyspark" : choice.engine;
  options.advice = absl::StrCat("Look in the logs of ", choice.engine, ", then give the command again.");
  options.failure = Reason::kTransportFailed;
  options.end_in = kEndOfTasks;
  options.stop = &stop;
  std::unique_ptr<EngineSession> session(new EngineSession(choice));
  CAIRN_ASSIGN_OR_RETURN(session->driver_, PythonProcess::Start(std::move(options)));
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  const std::string directory = std::filesystem::current_path(error).string();
  CAIRN_RETURN_IF_ERROR(session->Send('O', {{"engine", choice.engine},
                                            {"address", choice.address},
                                            {"program", program},
                                            {"version", VersionText("cairn")},
                                            {"cpus", choice.cpus},
                                            {"directory", directory}}));
  const absl::StatusOr<nlohmann::json> ready = session->Receive(absl::Now() + kConnect);
  if (HasReason(ready.status(), Reason::kTimedOut)) {
    return MakeError(Reason::kUnsupported,
                     absl::StrCat(choice.engine, " has not answered in ", absl::FormatDuration(kConnect)),
                     {{"next", "See that the cluster runs, and give its address by --engine-address."}});
  }
  CAIRN_RETURN_IF_ERROR(ready.status());
  session->slots_ = std::max(1, ready->value("ready", 1));
  return session;
}

absl::Status EngineSession::Send(char kind, const nlohmann::json& content) {
  // A file's name may have any bytes.
  return driver_->SendFrame(kind, content.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
}

absl::StatusOr<nlohmann::json> EngineSession::Receive(absl::Time deadline) {
  CAIRN_ASSIGN_OR_RETURN(const PythonProcess::Frame frame, driver_->ReceiveFrame(deadline));
  if (frame.kind == 'E') return driver_->ReceiveFailure(frame);
  if (frame.kind != 'A') return driver_->NoFrame();
  CAIRN_ASSIGN_OR_RETURN(const std::string content, driver_->ReceiveContent(frame, kMostAnswerBytes));
  nlohmann::json answer = nlohmann::json::parse(content, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) return driver_->NoFrame();
  return answer;
}

absl::StatusOr<std::vector<nlohmann::json>> EngineSession::Run(const std::vector<EngineTask>& tasks,
                                                               EngineProgress* progress) {
  nlohmann::json list = nlohmann::json::array();
  progress->tasks_done = progress->bytes_done = progress->bytes = 0;
  progress->tasks = tasks.size();
  for (const EngineTask& task : tasks) {
    nlohmann::json output = nullptr;
    if (task.output.has_value()) output = *task.output;
    list.push_back({{"name", task.name}, {"words", task.words}, {"output", output}, {"bytes", task.bytes}});
    progress->bytes += task.bytes;
  }
  CAIRN_RETURN_IF_ERROR(Send('S', {{"tasks", std::move(list)}}));
  std::vector<nlohmann::json> reports(tasks.size());
  std::vector<nlohmann::json> failures;
  while (true) {
    CAIRN_ASSIGN_OR_RETURN(nlohmann::json answer, Receive(absl::InfiniteFuture()));
    if (answer.contains("end")) break;
    const char* const kind = answer.contains("done") ? "done" : "failed";
    const auto number = answer.value(kind, tasks.size());
    if (number >= tasks.size()) return driver_->NoFrame();
    if (*kind == 'f') {
      failures.push_back(std::move(answer));
      continue;
    }
    if (reports[number].is_null()) {
      ++progress->tasks_done;
      progress->bytes_done += tasks[number].bytes;
    }
    reports[number] = std::move(answer["report"]);
  }
  if (!failures.empty()) return ErrorOf(failures, tasks);
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (reports[i].is_object()) continue;
    return MakeError(Reason::kTransportFailed, absl::StrCat(engine_, " has not told what became of ", tasks[i].name));
  }
  return reports;
}

}  // namespace cairn::corpus
