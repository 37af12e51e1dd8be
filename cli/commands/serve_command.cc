#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/base/interrupt.h"
#include "cli/client/coordinator_client.h"
#include "cli/commands/commands.h"
#include "cli/local/run_directory.h"
#include "cli/views/checkpoint_view.h"
#include "cli/views/job_view.h"
#include "cli/views/timeline_view.h"
#include "cli/web/web_site.h"
#include "common/base/mutex.h"
#include "common/base/random_id.h"
#include "common/file/atomic_write.h"
#include "common/format/checkpoint_path.h"
#include "common/rpc/address.h"
#include "common/rpc/token.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::cli {
namespace {

using Json = nlohmann::ordered_json;

// The maximum number of checkpoints of a job on the page: the newest ones.
constexpr size_t kCheckpointsShown = 200;

struct Arguments {
  std::string listen = "127.0.0.1:7430";
  std::vector<std::string> hosts;
  std::string page_token_file;
};

// Asks the coordinator for the page. Thread-safe.
class Questions {
 public:
  explicit Questions(std::unique_ptr<CoordinatorClient> client) : client_(std::move(client)) {}

  absl::StatusOr<Json> Jobs() {
    MutexLock lock(mutex_);
    v1::ListJobsResponse response;
    CAIRN_RETURN_IF_ERROR(client_->Call(&v1::MonitoringService::Stub::ListJobs, v1::ListJobsRequest(), &response));
    Json jobs = Json::array();
    for (const v1::JobSummary& job : response.jobs()) {
      Json& entry = jobs.emplace_back(Json{{"job", job.job()},
                                           {"world_size", job.world_size()},
                                           {"agents", job.agents()},
                                           {"trainers", job.trainers()},
                                           {"saves_running", job.saves_running()},
                                           {"loads_running", job.loads_running()},
                                           {"last_committed_step", nullptr}});
      if (job.has_last_committed_step()) entry["last_committed_step"] = job.last_committed_step();
    }
    return Json{{"jobs", std::move(jobs)}};
  }

  absl::StatusOr<Json> JobOf(const std::string& name) {
    CAIRN_RETURN_IF_ERROR(CheckJobName(name));
    MutexLock lock(mutex_);
    v1::GetJobRequest request;
    request.set_job(name);
    v1::Job job;
    CAIRN_RETURN_IF_ERROR(client_->Call(&v1::CheckpointService::Stub::GetJob, request, &job));
    CAIRN_ASSIGN_OR_RETURN(const auto committed, LastCommitted(*client_, name));
    return JobToJson(job, committed);
  }

  absl::StatusOr<Json> Checkpoints(const std::string& name) {
    CAIRN_RETURN_IF_ERROR(CheckJobName(name));
    MutexLock lock(mutex_);
    v1::ListCheckpointsRequest request;
    request.set_job(name);
    std::vector<v1::Checkpoint> listed;
    do {
      v1::ListCheckpointsResponse response;
      CAIRN_RETURN_IF_ERROR(client_->Call(&v1::CheckpointService::Stub::ListCheckpoints, request, &response));
      listed.insert(listed.end(), response.checkpoints().begin(), response.checkpoints().end());
      if (listed.size() > kCheckpointsShown) listed.erase(listed.begin(), listed.end() - kCheckpointsShown);
      request.set_page_token(response.next_page_token());
    } while (!request.page_token().empty());
    Json checkpoints = Json::array();
    for (auto each = listed.rbegin(); each != listed.rend(); ++each) checkpoints.push_back(ListedToJson(*each));
    return Json{{"checkpoints", std::move(checkpoints)}};
  }

  absl::StatusOr<Json> Timelines(const std::string& name) {
    CAIRN_RETURN_IF_ERROR(CheckJobName(name));
    MutexLock lock(mutex_);
    v1::ListTimelinesRequest request;
    request.set_job(name);
    request.set_summary(true);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::Timeline> listed, FetchTimelines(*client_, request));
    Json timelines = Json::array();
    for (const v1::Timeline& timeline : listed) timelines.push_back(TimelineToJson(timeline));
    return Json{{"timelines", std::move(timelines)}};
  }

  // `rest` is for example "7/llm": the timeline with number 7 of the job llm.
  absl::StatusOr<Json> TimelineOf(const std::string& rest) {
    const size_t slash = std::min(rest.find('/'), rest.size());
    const std::string name = rest.substr(std::min(rest.size(), slash + 1));
    uint64_t id = 0;
    if (!absl::SimpleAtoi(rest.substr(0, slash), &id) || id == 0) {
      return MakeError(Reason::kBadRequest, "a timeline is named by its number and its job");
    }
    CAIRN_RETURN_IF_ERROR(CheckJobName(name));
    MutexLock lock(mutex_);
    v1::ListTimelinesRequest request;
    request.set_job(name);
    request.set_id(id);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::Timeline> listed, FetchTimelines(*client_, request));
    if (listed.empty()) {
      return MakeError(Reason::kNotCommitted,
                       absl::StrCat("the coordinator has no timeline ", id, " of ", name, " any more"),
                       {{"job", name}});
    }
    return TimelineToJson(listed.front());
  }

 private:
  Mutex mutex_;
  const std::unique_ptr<CoordinatorClient> client_ ABSL_GUARDED_BY(mutex_);
};

// Returns the allowed Host headers: those of the printed address, and the names of --host.
std::vector<std::string> HostsOf(const Arguments& arguments, int port) {
  const std::string host = arguments.listen.substr(0, arguments.listen.rfind(':'));
  std::vector<std::string> names = arguments.hosts;
  names.push_back(host);
  if (IsLoopback(arguments.listen)) names.insert(names.end(), {"localhost", "127.0.0.1", "[::1]"});
  std::vector<std::string> hosts;
  for (const std::string& name : names) {
    const std::string lower = absl::AsciiStrToLower(name);
    hosts.push_back(absl::StrCat(lower, ":", port));
    // A proxy in front of this server has a port of its own, or the Host header has no port.
    if (std::find(arguments.hosts.begin(), arguments.hosts.end(), name) != arguments.hosts.end())
      hosts.push_back(lower);
  }
  return hosts;
}

// The token of the page, and the file that holds it.
class PageToken {
 public:
  // Reads the token, or makes one. The file of a new token can be read by this user only, and is removed at the end.
  static absl::StatusOr<std::unique_ptr<PageToken>> Open(const Arguments& arguments) {
    auto opened = std::make_unique<PageToken>();
    if (!arguments.page_token_file.empty()) {
      opened->file = arguments.page_token_file;
      CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> tokens, ReadTokenFile(opened->file));
      opened->token = tokens.front();
      return opened;
    }
    const std::string port = arguments.listen.substr(arguments.listen.rfind(':') + 1);
    const std::string name = absl::StrCat("serve-", port == "0" ? absl::StrCat("process-", getpid()) : port);
    const std::string path = RunDirectory::PathOf(name);
    if (const std::optional<pid_t> holder = RunDirectory::HolderOf(path); holder.has_value()) {
      return MakeError(Reason::kSocketDirectory,
                       absl::StrCat("another `cairn serve`, process ", *holder, ", has the page at ", arguments.listen),
                       {{"next", "Open that page, or give this one another --listen, for example 127.0.0.1:0."}});
    }
    CAIRN_ASSIGN_OR_RETURN(opened->directory, RunDirectory::Take(path));
    opened->file = opened->directory->path() + "/page-token";
    opened->token = RandomToken();
    CAIRN_RETURN_IF_ERROR(
        WriteAtomically(opened->file, opened->token + "\n",
                        {.replace = true, .durable = AtomicWriteOptions::Durable::kNothing, .mode = 0600})
            .put.status());
    return opened;
  }
  ~PageToken() {
    if (directory != nullptr) unlink(file.c_str());
  }

  std::string token;
  std::string file;
  std::unique_ptr<RunDirectory> directory;  // null if the user gave the file
};

// Several people may use the page at a time, and each request waits for the coordinator.
constexpr int kWorkers = 8;

absl::StatusOr<std::unique_ptr<HttpServer>> Listening(const std::string& address,
                                                      absl::FunctionRef<WebSite(int port)> make_site) {
  auto server = HttpServer::Start(address,
                                  [&](int port) -> HttpServer::Handler {
                                    auto site = std::make_shared<const WebSite>(make_site(port));
                                    return [site](const HttpRequest& request) { return site->Answer(request); };
                                  },
                                  {.workers = kWorkers});
  return server.ok()
             ? std::move(server)
             : WithMetadata(server.status(), {{"next", "Give --listen an address of this machine and a free port."}});
}

absl::Status Serve(const CommandContext& context, const Arguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(auto client, CoordinatorClient::Connect(context));
  Questions questions(std::move(client));
  // Asks the coordinator once first, so that a wrong address or token is reported here and not in the browser.
  CAIRN_RETURN_IF_ERROR(questions.Jobs().status());
  CAIRN_ASSIGN_OR_RETURN(const auto page_token, PageToken::Open(arguments));
  CAIRN_ASSIGN_OR_RETURN(
      const auto server, Listening(arguments.listen, [&](int port) {
        return WebSite(
            {.token = page_token->token,
             .hosts = HostsOf(arguments, port),
             .questions = {{"jobs", [&](const std::string&) { return questions.Jobs(); }},
                           {"job", [&](const std::string& job) { return questions.JobOf(job); }},
                           {"checkpoints", [&](const std::string& job) { return questions.Checkpoints(job); }},
                           {"timelines", [&](const std::string& job) { return questions.Timelines(job); }},
                           {"timeline", [&](const std::string& rest) { return questions.TimelineOf(rest); }}}});
      }));
  const std::string host = arguments.listen.substr(0, arguments.listen.rfind(':'));
  std::printf("http://%s:%d/\n", host.c_str(), server->port());
  std::printf("The page asks for a token: it is in %s.\n", page_token->file.c_str());
  std::fflush(stdout);
  while (!InterruptFlag()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return absl::OkStatus();
}

}  // namespace

void AddServeCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand("serve", "Serves a live web page with jobs, saves, loads, ranks and timelines");
  command.AddOption("--listen", arguments->listen, "Address of the page; port 0 takes a free one")
      .FromEnvironment("CAIRN_SERVE_LISTEN")
      .Fits(IsHostPort, "host:port, for example 127.0.0.1:7430")
      .ShowDefault();
  command
      .AddOption("--host", arguments->hosts,
                 "Another host name by which browsers reach the page; may be given several times")
      .OneEachTime();
  command.AddOption("--page-token-file", arguments->page_token_file,
                    "File whose first line is the page's token (default: a new one at each start)");
  RefuseRootToLook(command);
  command.Footer(
      "The page can change nothing. It asks for its own token, which is not the coordinator's.\nExamples:\n"
      "  cairn serve\n  ssh -L 7430:127.0.0.1:7430 login-node     # to see it from elsewhere\n"
      "Exit status: 0 after Ctrl-C, 1 failed, 2 usage, 3 the coordinator cannot be reached.");
  command.Action([arguments, &context] { context.exit_status = ReportError(context, Serve(context, *arguments)); });
}

}  // namespace cairn::cli
