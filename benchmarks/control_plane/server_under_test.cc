#include "benchmarks/control_plane/server_under_test.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// A coordinator reads what stands in its root before it says its address.
constexpr absl::Duration kStart = absl::Seconds(60);

}  // namespace

ServerUnderTest::ServerUnderTest(std::vector<std::string> command, std::string root, std::string log)
    : command_(std::move(command)), root_(std::move(root)), log_(std::move(log)) {}

ServerUnderTest::~ServerUnderTest() {
  process_.Kill();
  std::error_code ignored;
  if (!root_.empty()) std::filesystem::remove_all(std::filesystem::path(root_).parent_path(), ignored);
}

absl::Status ServerUnderTest::Begin(const std::string& listen) {
  std::vector<std::string> command = command_;
  command.insert(command.end(), {"--listen", listen});
  CAIRN_ASSIGN_OR_RETURN(process_, ChildProcess::Start(command, log_));
  CAIRN_ASSIGN_OR_RETURN(address_, process_.ReadLine(kStart));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ServerUnderTest>> ServerUnderTest::StartCoordinator(const std::string& program,
                                                                                   const std::string& directory,
                                                                                   absl::Duration lease) {
  std::string own = absl::StrCat(directory, "/cairn-control-plane-XXXXXX");
  if (mkdtemp(own.data()) == nullptr) {
    return MakeError(Reason::kStorageError, absl::StrCat("no directory can be made in ", directory));
  }
  const std::string root = own + "/root";
  std::unique_ptr<ServerUnderTest> server(new ServerUnderTest(
      {program, "--root", root, "--lease-ttl", absl::StrCat(absl::ToInt64Milliseconds(lease), "ms")}, root,
      own + "/log"));
  CAIRN_RETURN_IF_ERROR(server->Begin("127.0.0.1:0"));
  return server;
}

absl::StatusOr<std::unique_ptr<ServerUnderTest>> ServerUnderTest::StartEmptyServer(const std::string& program,
                                                                                   int items, absl::Duration lease) {
  std::unique_ptr<ServerUnderTest> server(new ServerUnderTest(
      {program, "--items", absl::StrCat(items), "--lease-ms", absl::StrCat(absl::ToInt64Milliseconds(lease))}, "", ""));
  CAIRN_RETURN_IF_ERROR(server->Begin("127.0.0.1:0"));
  return server;
}

absl::Status ServerUnderTest::Restart() {
  process_.Kill();
  return Begin(std::string(address_));
}

}  // namespace cairn
