#include "common/metrics/metrics_server.h"

#include <prometheus/exposer.h>

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/metrics/process_metrics.h"
#include "common/status/reason.h"

namespace cairn {

struct MetricsServer::Impl {
  std::vector<std::shared_ptr<prometheus::Collectable>> collectables;
  std::string address;
  std::unique_ptr<prometheus::Exposer> exposer;
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& address, std::vector<std::shared_ptr<prometheus::Collectable>> collectables) {
  auto impl = std::make_unique<Impl>();
  impl->collectables = std::move(collectables);
  impl->collectables.push_back(std::make_shared<ProcessMetrics>());
  const size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  try {
    // One thread listens and one answers; a second question waits for the first.
    impl->exposer = std::make_unique<prometheus::Exposer>(
        std::vector<std::string>{"listening_ports", address, "num_threads", "1", "request_timeout_ms", "5000"});
    for (const auto& collectable : impl->collectables) impl->exposer->RegisterCollectable(collectable);
    const std::vector<int> ports = impl->exposer->GetListeningPorts();
    impl->address = absl::StrCat(host, ":", ports.empty() ? 0 : ports.front());
  } catch (const std::exception& error) {
    return MakeError(Reason::kBadRequest, absl::StrCat("--metrics-listen ", address, " cannot be bound"),
                     {{"address", address},
                      {"next",
                       "Give an address of this machine and a port that nobody listens on; port 0 takes a free "
                       "one."}});
  }
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl)));
}

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsServer::~MetricsServer() = default;

const std::string& MetricsServer::address() const { return impl_->address; }

}  // namespace cairn
