// Serves metrics to Prometheus over HTTP.
//
// Only this room and what makes metrics include the headers of prometheus-cpp.
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
  // Answers GET /metrics on `address` (host:port; port 0 takes a free one) with what the collectables and the process
  // itself have to tell. The server shares the collectables, and asks them from its own threads.
  // INVALID_ARGUMENT (BAD_REQUEST): the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const std::string& address, std::vector<std::shared_ptr<prometheus::Collectable>> collectables);
  // Waits until the questions that are being answered have their answers. Then no collectable is asked any more.
  ~MetricsServer();

  // "host:port" with the port that was bound.
  const std::string& address() const;

 private:
  struct Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_METRICS_METRICS_SERVER_H_
