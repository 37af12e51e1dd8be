#include "store/s3/aws_runtime.h"

#include <aws/auth/auth.h>
#include <aws/io/channel.h>
#include <aws/io/event_loop.h>
#include <aws/io/host_resolver.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "store/s3/aws_event.h"

namespace cairn {
namespace {

// One call reads so much from a connection, or writes it. With 16 KiB, the library's own value, a load spends more
// time in calls of the kernel than in its work. Each of the two threads keeps four buffers of this size.
constexpr size_t kBytesOfCall = size_t{128} << 10;

}  // namespace

aws_allocator* AwsAllocator() {
  static const bool once = [] {
    g_aws_channel_max_fragment_size = kBytesOfCall;
    aws_auth_library_init(aws_default_allocator());
    return true;
  }();
  (void)once;
  return aws_default_allocator();
}

std::string AwsErrorText(int error) { return absl::StrCat(aws_error_str(error), " (", aws_error_name(error), ")"); }

absl::Status AwsRefuses(std::string_view what) {
  return MakeError(Reason::kStorageError, absl::StrCat(std::string(what), ": ", AwsErrorText(aws_last_error())));
}

// In the order in which it was made.
struct AwsRuntime::Parts {
  AwsEvent loops_ended, resolver_ended;
  aws_event_loop_group* loops = nullptr;
  aws_host_resolver* resolver = nullptr;
  aws_client_bootstrap* bootstrap = nullptr;
  aws_tls_ctx* tls = nullptr;

  // Returns false if something is held. Then the parts must stay.
  bool End() {
    constexpr absl::Duration kMost = absl::Seconds(1);
    if (tls != nullptr) aws_tls_ctx_release(tls);
    aws_client_bootstrap_release(bootstrap);
    if (resolver != nullptr) {
      aws_host_resolver_release(resolver);
      if (!resolver_ended.WaitFor(kMost).has_value()) return false;
    }
    if (loops != nullptr) {
      aws_event_loop_group_release(loops);
      if (!loops_ended.WaitFor(kMost).has_value()) return false;
    }
    return true;
  }
};

AwsRuntime::AwsRuntime(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

AwsRuntime::~AwsRuntime() {
  if (parts_->End()) return;
  [[maybe_unused]] const Parts* const left_behind = parts_.release();
}

aws_client_bootstrap* AwsRuntime::bootstrap() const { return parts_->bootstrap; }
aws_tls_ctx* AwsRuntime::tls() const { return parts_->tls; }

absl::StatusOr<std::unique_ptr<AwsRuntime>> AwsRuntime::Open(const std::string& ca_file, const std::string& ca_variable,
                                                             bool tls) {
  aws_allocator* const allocator = AwsAllocator();
  std::unique_ptr<AwsRuntime> runtime(new AwsRuntime(std::make_unique<Parts>()));
  Parts& parts = *runtime->parts_;
  const aws_shutdown_callback_options loops_ended = {Ended, &parts.loops_ended};
  parts.loops = aws_event_loop_group_new_default(allocator, /*max_threads=*/2, &loops_ended);
  if (parts.loops == nullptr) return AwsRefuses("threads for connections");
  const aws_shutdown_callback_options resolver_ended = {Ended, &parts.resolver_ended};
  aws_host_resolver_default_options resolving = {};
  resolving.max_entries = 64;
  resolving.el_group = parts.loops;
  resolving.shutdown_options = &resolver_ended;
  parts.resolver = aws_host_resolver_new_default(allocator, &resolving);
  if (parts.resolver == nullptr) return AwsRefuses("names of hosts");
  aws_client_bootstrap_options starting = {};
  starting.event_loop_group = parts.loops;
  starting.host_resolver = parts.resolver;
  parts.bootstrap = aws_client_bootstrap_new(allocator, &starting);
  if (parts.bootstrap == nullptr) return AwsRefuses("connections");

  aws_tls_ctx_options trust;
  aws_tls_ctx_options_init_default_client(&trust, allocator);
  const bool trusted = ca_file.empty() || aws_tls_ctx_options_override_default_trust_store_from_path(
                                              &trust, nullptr, ca_file.c_str()) == AWS_OP_SUCCESS;
  if (trusted) parts.tls = aws_tls_client_ctx_new(allocator, &trust);
  aws_tls_ctx_options_clean_up(&trust);
  // Without TLS to the store, only some ways to credentials need certificates.
  if (parts.tls == nullptr && (tls || !ca_file.empty())) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("the certificates", ca_file.empty() ? " of the system" : " in ", ca_file,
                                  " cannot be used: ", AwsErrorText(aws_last_error())),
                     {{"next", absl::StrCat("Install the package ca-certificates, or set ", ca_variable,
                                            " to a file of certificates.")}});
  }
  return runtime;
}

}  // namespace cairn
