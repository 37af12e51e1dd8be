// What Amazon's C libraries need before they connect to anything: threads, names of hosts, and whom to trust.
#ifndef CAIRN_STORE_S3_AWS_RUNTIME_H_
#define CAIRN_STORE_S3_AWS_RUNTIME_H_

#include <aws/common/byte_buf.h>
#include <aws/common/common.h>
#include <aws/io/channel_bootstrap.h>
#include <aws/io/tls_channel_handler.h>

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cairn {

// Returns the allocator of the libraries. The first call makes them ready; they stay for as long as the process does.
aws_allocator* AwsAllocator();

// Both lend.
inline aws_byte_cursor CursorOf(std::string_view text) { return aws_byte_cursor_from_array(text.data(), text.size()); }
inline std::string_view TextOf(const aws_byte_cursor& cursor) {
  return {reinterpret_cast<const char*>(cursor.ptr), cursor.len};
}

// Says what an error of the libraries is: "socket connection refused. (AWS_IO_SOCKET_CONNECTION_REFUSED)".
std::string AwsErrorText(int error);
// Makes the error that the system refuses what the libraries need: UNAVAILABLE (STORAGE_ERROR) "threads: ...".
absl::Status AwsRefuses(std::string_view what);

// Thread-safe. Its threads end with it, unless something holds one, as a server of credentials that does not answer;
// then that one is left behind.
class AwsRuntime {
 public:
  // `ca_file` has the certificates of authorities, and came from the variable `ca_variable`; empty: those of the
  // system are used. INVALID_ARGUMENT (BAD_REQUEST): they
  // cannot be used, and `tls` says that they are needed, or there is a file. UNAVAILABLE (STORAGE_ERROR).
  static absl::StatusOr<std::unique_ptr<AwsRuntime>> Open(const std::string& ca_file, const std::string& ca_variable,
                                                          bool tls);
  ~AwsRuntime();

  aws_client_bootstrap* bootstrap() const;
  aws_tls_ctx* tls() const;  // null: there are no certificates

 private:
  struct Parts;
  explicit AwsRuntime(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_S3_AWS_RUNTIME_H_
