// Serves metrics to Prometheus over HTTP.
//
// Only this folder and code that makes metrics include the headers of prometheus-cpp.
#ifndef CAIRN_COMMON_METRICS_METRICS_SERVER_H_
#define CAIRN_COMMON_METRICS_METRICS_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace prometheus {
class Collectable;
}

namespace cairn {

// Thread-safe.
class MetricsServer {
 public:
  // Answers GET /metrics on `address` (host:port; port 0 takes a free one) with the metrics of the collectables and of
  // the process itself. The server shares ownership of the collectables, and calls them on its own thread.
  // INVALID_ARGUMENT (BAD_REQUEST): the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const std::string& address, std::vector<std::shared_ptr<prometheus::Collectable>> collectables);
  // Waits for requests that are being answered.
  ~MetricsServer();

  // Returns "host:port" with the port that was bound.
  const std::string& address() const;

 private:
  struct Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_METRICS_METRICS_SERVER_H_
