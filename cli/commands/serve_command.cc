#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/base/interrupt.h"
#include "cli/client/coordinator_client.h"
#include "cli/commands/commands.h"
#include "cli/web/page_questions.h"
#include "cli/web/page_token.h"
#include "cli/web/web_site.h"
#include "common/http/http_server.h"
#include "common/rpc/address.h"
#include "common/rpc/listening_sockets.h"
#include "common/status/status.h"

namespace cairn::cli {
namespace {

struct Arguments {
  std::string listen = "127.0.0.1:7430";
  std::vector<std::string> hosts;
  std::string page_token_file;
};

// Returns the allowed Host headers: those of the printed address, and the names of --host. Browsers send an IPv6
// address in its canonical spelling and in brackets.
std::vector<std::string> HostsOf(const Arguments& arguments, int port) {
  std::vector<std::string> names = arguments.hosts;
  names.push_back(HostAndPort(CanonicalAddress(arguments.listen)).first);
  if (IsLoopback(arguments.listen)) names.insert(names.end(), {"localhost", "127.0.0.1", "[::1]"});
  std::vector<std::string> hosts;
  for (const std::string& name : names) {
    const std::string host = CanonicalAddress(JoinHostPort(name, port));
    hosts.push_back(host);
    // A proxy in front of this server has a port of its own, or the Host header has no port.
    if (std::find(arguments.hosts.begin(), arguments.hosts.end(), name) != arguments.hosts.end())
      hosts.push_back(host.substr(0, host.rfind(':')));
  }
  return hosts;
}

// Several people may use the page at a time, and each request waits for the coordinator.
constexpr int kWorkers = 2 * PageQuestions::kMostAtStorage;

absl::Status Serve(const CommandContext& context, const Arguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(auto client, CoordinatorClient::Connect(context));
  PageQuestions questions(std::move(client));
  // Asks the coordinator once first, so that a wrong address or token is reported here and not in the browser.
  CAIRN_RETURN_IF_ERROR(questions.Jobs().status());
  CAIRN_ASSIGN_OR_RETURN(const auto page_token, PageToken::Open(arguments.listen, arguments.page_token_file));
  CAIRN_ASSIGN_OR_RETURN(ListeningSockets listening, ListenAt("--listen", arguments.listen));
  const auto site = std::make_shared<const WebSite>(WebSite::Options{
      .token = page_token->token(), .hosts = HostsOf(arguments, listening.port), .questions = questions.ByName()});
  CAIRN_ASSIGN_OR_RETURN(
      const auto server,
      HttpServer::Start(std::move(listening.sockets),
                        [site](const HttpRequest& request) { return site->Answer(request); }, {.workers = kWorkers}));
  std::printf("http://%s/\n", listening.address.c_str());
  std::printf("The page asks for a token: it is in %s.\n", page_token->file().c_str());
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
      .Fits(HostPortLike("127.0.0.1:7430"))
      .ShowDefault();
  command
      .AddOption("--host", arguments->hosts,
                 "Another host name by which browsers reach the page; may be given several times")
      .OneEachTime();
  command.AddOption("--page-token-file", arguments->page_token_file,
                    "File whose first line is the page's token (default: one that is kept for this port while the user "
                    "is logged in)");
  RefuseRootToLook(command);
  command.Footer(
      "The page can change nothing. It asks for its own token, which is not the coordinator's.\nExamples:\n"
      "  cairn serve\n  ssh -L 7430:127.0.0.1:7430 login-node     # to see it from elsewhere\n"
      "Exit status: 0 after Ctrl-C, 1 failed, 2 usage, 3 the coordinator cannot be reached.");
  command.Action([arguments, &context] { context.exit_status = ReportError(context, Serve(context, *arguments)); });
}

}  // namespace cairn::cli
