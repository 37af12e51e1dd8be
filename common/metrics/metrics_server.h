// Serves metrics to Prometheus over HTTP.
//
// Only this folder and code that makes metrics include the headers of prometheus-cpp.
#ifndef CAIRN_COMMON_METRICS_METRICS_SERVER_H_
#define CAIRN_COMMON_METRICS_METRICS_SERVER_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"
#include "common/metrics/merged_metrics.h"

namespace prometheus {
class Collectable;
}

namespace cairn {

struct MetricsOptions {
  // If set, returns the metrics of other processes, which are served too. It may take long: three scrapes may wait for
  // it at the same time, and further ones follow them.
  std::function<std::vector<MetricsText>()> others;
  // If set, GET /serving answers 200 if it returns true, else 503: a startup probe asks this. It waits for no scrape.
  std::function<bool()> serving;
};

// Thread-safe.
class MetricsServer {
 public:
  // Answers GET /metrics on listening sockets (common/rpc/listening_sockets.h) with the metrics of the collectables and
  // of the process itself. The server shares ownership of the collectables, and calls them on its own threads.
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system refused the threads, or a descriptor.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      std::vector<UniqueFd> listeners, std::vector<std::shared_ptr<prometheus::Collectable>> collectables,
      MetricsOptions options = {});
  // Waits for requests that are being answered.
  ~MetricsServer();

 private:
  struct Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_METRICS_METRICS_SERVER_H_
