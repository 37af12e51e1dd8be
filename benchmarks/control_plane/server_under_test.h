// The coordinator, or the empty server, with a root of its own.
#ifndef CAIRN_BENCHMARKS_CONTROL_PLANE_SERVER_UNDER_TEST_H_
#define CAIRN_BENCHMARKS_CONTROL_PLANE_SERVER_UNDER_TEST_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "benchmarks/control_plane/child_process.h"

namespace cairn {

class ServerUnderTest {
 public:
  // Starts `cairn-coordinator` at `program` with a root below `directory`, which goes when this ends.
  static absl::StatusOr<std::unique_ptr<ServerUnderTest>> StartCoordinator(const std::string& program,
                                                                           const std::string& directory,
                                                                           absl::Duration lease);
  // Starts `empty_server` at `program`, for ranks with layouts of so many items.
  static absl::StatusOr<std::unique_ptr<ServerUnderTest>> StartEmptyServer(const std::string& program, int items,
                                                                           absl::Duration lease);
  ~ServerUnderTest();

  const std::string& address() const { return address_; }
  // Returns the root; it is empty for the empty server.
  const std::string& root() const { return root_; }
  const ChildProcess& process() const { return process_; }
  // Kills it as kill -9 does, and starts it again at the same address.
  absl::Status Restart();

 private:
  ServerUnderTest(std::vector<std::string> command, std::string root, std::string log);
  absl::Status Begin(const std::string& listen);

  const std::vector<std::string> command_;
  const std::string root_;
  const std::string log_;
  ChildProcess process_;
  std::string address_;
};

}  // namespace cairn

#endif  // CAIRN_BENCHMARKS_CONTROL_PLANE_SERVER_UNDER_TEST_H_
