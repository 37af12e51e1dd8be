#include "common/metrics/metrics_server.h"

#include <prometheus/text_serializer.h>

#include <iterator>
#include <utility>

#include "common/http/http_server.h"
#include "common/metrics/process_metrics.h"
#include "common/status/status.h"

namespace cairn {
namespace {

using Collectables = std::vector<std::shared_ptr<prometheus::Collectable>>;

// So many scrapes may wait for other processes at the same time: one of each server that scrapes, as a rule two.
constexpr int kScrapesOfOthers = 3;
constexpr char kServing[] = "/serving";

std::string Collected(const Collectables& collectables) {
  std::vector<prometheus::MetricFamily> families;
  for (const auto& collectable : collectables) {
    std::vector<prometheus::MetricFamily> collected = collectable->Collect();
    families.insert(families.end(), std::make_move_iterator(collected.begin()),
                    std::make_move_iterator(collected.end()));
  }
  return prometheus::TextSerializer().Serialize(families);
}

HttpAnswer Answer(const HttpRequest& request, const Collectables& collectables, const MetricsOptions& options) {
  constexpr char kPlain[] = "text/plain; charset=utf-8";
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (reads && request.path == kServing && options.serving) {
    return options.serving() ? HttpAnswer{200, kPlain, "serving\n", {}} : HttpAnswer{503, kPlain, "not yet\n", {}};
  }
  if (!reads || request.path != "/metrics") return {404, kPlain, "There is only GET /metrics here.\n", {}};
  HttpAnswer answer = {200, "text/plain; version=0.0.4; charset=utf-8", "", {}};
  if (request.method == "HEAD") return answer;
  answer.body = Collected(collectables);
  if (options.others) {
    std::vector<MetricsText> all = {{"", std::move(answer.body)}};
    std::vector<MetricsText> others = options.others();
    all.insert(all.end(), std::make_move_iterator(others.begin()), std::make_move_iterator(others.end()));
    answer.body = MergedMetrics(all);
  }
  return answer;
}

}  // namespace

struct MetricsServer::Impl {
  std::unique_ptr<HttpServer> server;
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(std::vector<UniqueFd> listeners,
                                                                    Collectables collectables, MetricsOptions options) {
  collectables.push_back(std::make_shared<ProcessMetrics>());
  HttpServerOptions http = {.workers = options.others ? kScrapesOfOthers : 1};
  if (options.serving) http.urgent = [](const HttpRequest& request) { return request.path == kServing; };
  auto impl = std::make_unique<Impl>();
  CAIRN_ASSIGN_OR_RETURN(impl->server,
                         HttpServer::Start(
                             std::move(listeners),
                             [collectables = std::move(collectables), options = std::move(options)](
                                 const HttpRequest& request) { return Answer(request, collectables, options); },
                             http));
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl)));
}

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsServer::~MetricsServer() = default;

}  // namespace cairn
