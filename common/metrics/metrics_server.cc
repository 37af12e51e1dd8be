#include "common/metrics/metrics_server.h"

#include <prometheus/text_serializer.h>

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/http/http_server.h"
#include "common/metrics/process_metrics.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

using Collectables = std::vector<std::shared_ptr<prometheus::Collectable>>;

HttpAnswer Answer(const HttpRequest& request, const Collectables& collectables) {
  if (request.path != "/metrics" || (request.method != "GET" && request.method != "HEAD")) {
    return {404, "text/plain; charset=utf-8", "There is only GET /metrics here.\n", {}};
  }
  std::vector<prometheus::MetricFamily> families;
  for (const auto& collectable : collectables) {
    std::vector<prometheus::MetricFamily> collected = collectable->Collect();
    families.insert(families.end(), std::make_move_iterator(collected.begin()),
                    std::make_move_iterator(collected.end()));
  }
  HttpAnswer answer = {200, "text/plain; version=0.0.4; charset=utf-8", "", {}};
  if (request.method == "GET") answer.body = prometheus::TextSerializer().Serialize(families);
  return answer;
}

}  // namespace

struct MetricsServer::Impl {
  std::string address;
  std::unique_ptr<HttpServer> server;
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address,
                                                                    Collectables collectables) {
  collectables.push_back(std::make_shared<ProcessMetrics>());
  auto server = HttpServer::Start(address, [&](int) -> HttpServer::Handler {
    return [collectables](const HttpRequest& request) { return Answer(request, collectables); };
  });
  if (HasReason(server.status(), Reason::kBadRequest)) {
    return WithMetadata(Annotate(server.status(), "--metrics-listen"),
                        {{"next",
                          "Give an address of this machine and a port that nobody listens on; port 0 takes a free "
                          "one."}});
  }
  CAIRN_RETURN_IF_ERROR(server.status());
  auto impl = std::make_unique<Impl>();
  impl->address = absl::StrCat(address.substr(0, address.rfind(':')), ":", (*server)->port());
  impl->server = *std::move(server);
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl)));
}

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsServer::~MetricsServer() = default;

const std::string& MetricsServer::address() const { return impl_->address; }

}  // namespace cairn
