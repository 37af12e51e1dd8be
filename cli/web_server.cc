#include "cli/web_server.h"

#include <civetweb.h>

#include <array>
#include <latch>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn::cli {

struct WebServer::Impl {
  ~Impl() {
    if (context != nullptr) mg_stop(context);
  }

  std::optional<WebSite> site;
  std::latch ready{1};  // the site is there, or will never be
  mg_context* context = nullptr;
  int port = 0;
};

namespace {

// Each connection keeps a thread until it has asked, or its time is over: a few that say nothing must not keep
// everybody else out.
constexpr char kThreads[] = "32";

std::string HeaderOf(const mg_connection* connection, const char* name) {
  const char* value = mg_get_header(connection, name);
  return value == nullptr ? "" : value;
}

const char* StatusText(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 421:
      return "Misdirected Request";
    case 503:
      return "Service Unavailable";
    default:
      return "Bad Gateway";
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<WebServer>> WebServer::Start(const std::string& address,
                                                            absl::FunctionRef<WebSite(int port)> make_site) {
  auto impl = std::make_unique<Impl>();
  mg_callbacks callbacks = {};
  // It answers every request, so CivetWeb never looks for files.
  callbacks.begin_request = [](mg_connection* connection) {
    const mg_request_info* info = mg_get_request_info(connection);
    auto& self = *static_cast<Impl*>(info->user_data);
    self.ready.wait();
    if (!self.site.has_value()) return 503;
    const WebAnswer answer = self.site->Answer({info->request_method, info->local_uri != nullptr ? info->local_uri : "",
                                                HeaderOf(connection, "Host"), HeaderOf(connection, "Authorization")});
    std::string head =
        absl::StrCat("HTTP/1.1 ", answer.status, " ", StatusText(answer.status), "\r\nContent-Type: ", answer.type,
                     "\r\nContent-Length: ", answer.body.size(), "\r\n");
    for (const auto& [name, value] : answer.headers) absl::StrAppend(&head, name, ": ", value, "\r\n");
    absl::StrAppend(&head, "\r\n");
    mg_write(connection, head.data(), head.size());
    mg_write(connection, answer.body.data(), answer.body.size());
    return answer.status;
  };
  std::array<const char*, 11> options = {"listening_ports",
                                         address.c_str(),
                                         "num_threads",
                                         kThreads,
                                         "request_timeout_ms",
                                         "5000",
                                         "enable_keep_alive",
                                         "yes",
                                         "keep_alive_timeout_ms",
                                         "5000",
                                         nullptr};
  impl->context = mg_start(&callbacks, impl.get(), options.data());
  mg_server_port port = {};
  if (impl->context == nullptr || mg_get_server_ports(impl->context, 1, &port) != 1) {
    impl->ready.count_down();
    return MakeError(Reason::kBadRequest, absl::StrCat("cannot listen on ", address),
                     {{"address", address}, {"next", "Give --listen an address of this machine and a free port."}});
  }
  impl->port = port.port;
  impl->site.emplace(make_site(impl->port));
  impl->ready.count_down();
  return std::unique_ptr<WebServer>(new WebServer(std::move(impl)));
}

WebServer::WebServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WebServer::~WebServer() = default;

int WebServer::port() const { return impl_->port; }

}  // namespace cairn::cli
