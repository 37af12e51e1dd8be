#include "store/s3/s3_wire.h"

#include <aws/auth/auth.h>
#include <aws/auth/credentials.h>
#include <aws/auth/signable.h>
#include <aws/auth/signing.h>
#include <aws/auth/signing_config.h>
#include <aws/auth/signing_result.h>
#include <aws/http/connection.h>
#include <aws/http/connection_manager.h>
#include <aws/http/proxy.h>
#include <aws/http/request_response.h>
#include <aws/http/statistics.h>
#include <aws/io/channel_bootstrap.h>
#include <aws/io/event_loop.h>
#include <aws/io/host_resolver.h>
#include <aws/io/socket.h>
#include <aws/io/stream.h>
#include <aws/io/tls_channel_handler.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"
#include "store/s3/http_status.h"

namespace cairn {
namespace {

constexpr uint64_t kMaxHeaderBytes = 64 << 10;
constexpr uint64_t kLeastBytesPerSecond = 256 << 10;
constexpr uint32_t kConnectTimeoutMs = 5000;
// s2n tells of a failed handshake only after a random time up to this, so that an attacker learns nothing from it.
constexpr absl::Duration kTlsBlinding = absl::Seconds(30);

aws_allocator* Allocator() {
  // The libraries stay for as long as the process does.
  static const bool once = (aws_auth_library_init(aws_default_allocator()), true);
  (void)once;
  return aws_default_allocator();
}

aws_byte_cursor CursorOf(std::string_view text) { return aws_byte_cursor_from_array(text.data(), text.size()); }

std::string_view TextOf(const aws_byte_cursor& cursor) {
  return {reinterpret_cast<const char*>(cursor.ptr), cursor.len};
}

// Something that a callback of the libraries ends.
class Event {
 public:
  // The event may be gone as soon as this has returned on another thread's side.
  void Set(int error) {
    MutexLock lock(mutex_);
    error_ = error;
    set_ = true;
    changed_.NotifyAll();
  }
  int Wait() {
    MutexLock lock(mutex_);
    while (!set_) changed_.Wait(mutex_);
    return error_;
  }
  // Returns nothing if the event has not come after `most`, or once `stop` (which may be null) is true.
  std::optional<int> WaitFor(absl::Duration most, const std::atomic<bool>* stop = nullptr) {
    constexpr absl::Duration kLook = absl::Milliseconds(100);
    const absl::Time until = absl::Now() + most;
    MutexLock lock(mutex_);
    while (!set_) {
      const absl::Duration left = until - absl::Now();
      if (left <= absl::ZeroDuration() || (stop != nullptr && *stop)) return std::nullopt;
      changed_.WaitFor(mutex_, stop == nullptr ? left : std::min(left, kLook));
    }
    return error_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool set_ ABSL_GUARDED_BY(mutex_) = false;
  int error_ ABSL_GUARDED_BY(mutex_) = 0;
};

void Ended(void* event) { static_cast<Event*>(event)->Set(0); }

std::string ErrorText(int error) { return absl::StrCat(aws_error_str(error), " (", aws_error_name(error), ")"); }

using Message = std::unique_ptr<aws_http_message, decltype(&aws_http_message_release)>;

// One request that is under way. The members are touched by the thread of its connection until `ended`.
struct Exchange {
  const S3Request* request = nullptr;
  S3Answer answer;
  uint64_t header_bytes = 0;
  Event ended;
};

// A request that gets its signature. It is freed when both sides have let go, because credentials may come too late.
struct Signing {
  Message message{nullptr, &aws_http_message_release};
  std::unique_ptr<aws_signable, decltype(&aws_signable_destroy)> signable{nullptr, &aws_signable_destroy};
  Event ended;
};

// A wait for a connection, which may come too late.
struct Connecting {
  aws_http_connection_manager* manager = nullptr;
  aws_http_connection* connection = nullptr;
  Mutex mutex;
  bool given_up ABSL_GUARDED_BY(mutex) = false;
  Event ended;

  // Returns false if the connection is there.
  bool GiveUp() {
    MutexLock lock(mutex);
    given_up = connection == nullptr;
    return given_up;
  }
};

// What the libraries hold of a thing until they call back.
template <typename T>
void* Held(const std::shared_ptr<T>& thing) {
  return new std::shared_ptr<T>(thing);
}
template <typename T>
std::shared_ptr<T> TakeHeld(void* data) {
  const std::unique_ptr<std::shared_ptr<T>> held(static_cast<std::shared_ptr<T>*>(data));
  return *held;
}

// Takes a part of an answer by `take`, which must throw nothing into the libraries. If that fails, the exchange ends.
template <typename Take>
int TakePart(Exchange& exchange, Take&& take) {
  exchange.answer.refused = WithMemory("for the answer of an object store", take);
  return exchange.answer.refused.ok() ? AWS_OP_SUCCESS : aws_raise_error(AWS_ERROR_SHORT_BUFFER);
}

int OnHeaders(aws_http_stream* stream, aws_http_header_block block, const aws_http_header* headers, size_t count,
              void* data) {
  auto& exchange = *static_cast<Exchange*>(data);
  if (block == AWS_HTTP_HEADER_BLOCK_INFORMATIONAL) return AWS_OP_SUCCESS;
  aws_http_stream_get_incoming_response_status(stream, &exchange.answer.status);
  return TakePart(exchange, [&]() -> absl::Status {
    for (size_t i = 0; i < count; ++i) {
      exchange.header_bytes += headers[i].name.len + headers[i].value.len;
      if (exchange.header_bytes > kMaxHeaderBytes) {
        return MakeError(Reason::kMessageTooLarge, "the store answers with headers without end");
      }
      exchange.answer.headers[absl::AsciiStrToLower(std::string(TextOf(headers[i].name)))] =
          std::string(TextOf(headers[i].value));
    }
    return absl::OkStatus();
  });
}

int OnBody(aws_http_stream*, const aws_byte_cursor* bytes, void* data) {
  auto& exchange = *static_cast<Exchange*>(data);
  return TakePart(exchange, [&]() -> absl::Status {
    S3Answer& answer = exchange.answer;
    const S3Request& request = *exchange.request;
    const bool good = IsGood(answer.status);
    const bool to_caller = request.to != nullptr && good;
    if (to_caller && answer.status != kHttpPartialContent) {
      return MakeError(Reason::kStorageError, "the store answers with a whole object where a range was asked for");
    }
    const uint64_t received = to_caller ? answer.received : answer.body.size();
    const uint64_t max_bytes = good ? request.max_bytes : S3Request::kMaxWords;
    if (bytes->len > max_bytes - std::min(received, max_bytes)) {
      return MakeError(Reason::kMessageTooLarge,
                       absl::StrCat("the store answers with more than ", max_bytes, " bytes"));
    }
    if (to_caller) {
      std::memcpy(request.to + answer.received, bytes->ptr, bytes->len);
      answer.received += bytes->len;
    } else {
      answer.body.append(TextOf(*bytes));
    }
    return absl::OkStatus();
  });
}

void OnComplete(aws_http_stream*, int error, void* data) { static_cast<Exchange*>(data)->ended.Set(error); }

void OnConnected(aws_http_connection* connection, int error, void* data) {
  const std::shared_ptr<Connecting> connecting = TakeHeld<Connecting>(data);
  {
    MutexLock lock(connecting->mutex);
    if (!connecting->given_up) connecting->connection = connection;
    if (connecting->given_up && connection != nullptr) {
      aws_http_connection_manager_release_connection(connecting->manager, connection);
    }
  }
  connecting->ended.Set(error);
}

void OnSigned(aws_signing_result* result, int error, void* data) {
  const std::shared_ptr<Signing> signing = TakeHeld<Signing>(data);
  if (error == 0 &&
      aws_apply_signing_result_to_http_request(signing->message.get(), Allocator(), result) != AWS_OP_SUCCESS) {
    error = aws_last_error();
  }
  signing->ended.Set(error);
}

}  // namespace

std::string S3Answer::Header(const std::string& name) const {
  const auto at = headers.find(name);
  return at == headers.end() ? "" : at->second;
}

// What the libraries have made for this wire, in the order in which it was made.
struct S3Wire::Parts {
  Event loops_ended, resolver_ended, manager_ended;
  aws_event_loop_group* loops = nullptr;
  aws_host_resolver* resolver = nullptr;
  aws_client_bootstrap* bootstrap = nullptr;
  aws_tls_ctx* tls = nullptr;
  Mutex mutex;
  aws_credentials_provider* credentials ABSL_GUARDED_BY(mutex) = nullptr;
  aws_http_connection_manager* manager = nullptr;

  // Returns false if something is held. Then the parts must stay.
  bool End() {
    constexpr absl::Duration kMost = absl::Seconds(2);
    if (manager != nullptr) {
      aws_http_connection_manager_release(manager);
      if (!manager_ended.WaitFor(kMost).has_value()) return false;
    }
    {
      MutexLock lock(mutex);
      aws_credentials_provider_release(credentials);
    }
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

  // Makes the chain of what may give credentials. Null: it cannot.
  aws_credentials_provider* NewCredentials() const {
    proxy_env_var_settings proxies = {};
    proxies.env_var_type = AWS_HPEV_ENABLE;
    aws_credentials_provider_chain_default_options chain = {};
    chain.bootstrap = bootstrap;
    chain.tls_ctx = tls;
    chain.proxy_ev_settings = &proxies;
    return aws_credentials_provider_new_chain_default(Allocator(), &chain);
  }

  // Returns the credentials, which the caller must release.
  aws_credentials_provider* Credentials() {
    MutexLock lock(mutex);
    return aws_credentials_provider_acquire(credentials);
  }
  // Puts others in the place of those whose server does not answer: these ask it once, and wait for ever.
  void Replace(const aws_credentials_provider* silent) {
    MutexLock lock(mutex);
    if (credentials != silent) return;
    aws_credentials_provider* const others = NewCredentials();
    if (others == nullptr) return;
    aws_credentials_provider_release(credentials);
    credentials = others;
  }
};

S3Wire::S3Wire(S3Address address, const Options& options)
    : address_(std::move(address)), options_(options), parts_(std::make_unique<Parts>()) {}

S3Wire::~S3Wire() {
  if (!parts_->End()) static_cast<void>(parts_.release());
}

absl::StatusOr<std::unique_ptr<S3Wire>> S3Wire::Open(const S3Address& address, const Options& options) {
  aws_allocator* const allocator = Allocator();
  std::unique_ptr<S3Wire> wire(new S3Wire(address, options));
  Parts& parts = *wire->parts_;
  const auto refused = [&](std::string_view what) {
    return MakeError(Reason::kStorageError,
                     absl::StrCat("s3://", address.bucket, ": ", std::string(what), ": ", ErrorText(aws_last_error())));
  };
  const aws_shutdown_callback_options loops_ended = {Ended, &parts.loops_ended};
  parts.loops = aws_event_loop_group_new_default(allocator, /*max_threads=*/2, &loops_ended);
  if (parts.loops == nullptr) return refused("threads for connections");
  const aws_shutdown_callback_options resolver_ended = {Ended, &parts.resolver_ended};
  aws_host_resolver_default_options resolving = {};
  resolving.max_entries = 64;
  resolving.el_group = parts.loops;
  resolving.shutdown_options = &resolver_ended;
  parts.resolver = aws_host_resolver_new_default(allocator, &resolving);
  if (parts.resolver == nullptr) return refused("names of hosts");
  aws_client_bootstrap_options starting = {};
  starting.event_loop_group = parts.loops;
  starting.host_resolver = parts.resolver;
  parts.bootstrap = aws_client_bootstrap_new(allocator, &starting);
  if (parts.bootstrap == nullptr) return refused("connections");

  aws_tls_ctx_options trust;
  aws_tls_ctx_options_init_default_client(&trust, allocator);
  const bool trusted = address.ca_file.empty() || aws_tls_ctx_options_override_default_trust_store_from_path(
                                                      &trust, nullptr, address.ca_file.c_str()) == AWS_OP_SUCCESS;
  if (trusted) parts.tls = aws_tls_client_ctx_new(allocator, &trust);
  aws_tls_ctx_options_clean_up(&trust);
  // Without TLS to the store, only some ways to credentials need certificates.
  if (parts.tls == nullptr && (address.tls || !address.ca_file.empty())) {
    return MakeError(
        Reason::kBadRequest,
        absl::StrCat("the certificates", address.ca_file.empty() ? " of the system" : " in ", address.ca_file,
                     " cannot be used: ", ErrorText(aws_last_error())),
        {{"next", "Install the package ca-certificates, or set AWS_CA_BUNDLE to a file of certificates."}});
  }

  {
    MutexLock lock(parts.mutex);
    parts.credentials = parts.NewCredentials();
    if (parts.credentials == nullptr) return refused("credentials");
  }

  proxy_env_var_settings proxies = {};
  proxies.env_var_type = AWS_HPEV_ENABLE;
  aws_socket_options socket = {};
  socket.type = AWS_SOCKET_STREAM;
  socket.domain = AWS_SOCKET_IPV4;
  socket.connect_timeout_ms = kConnectTimeoutMs;
  const auto silence = static_cast<uint32_t>(absl::ToInt64Seconds(options.silence));
  aws_http_connection_monitoring_options monitoring = {};
  monitoring.minimum_throughput_bytes_per_second = 1;
  monitoring.allowable_throughput_failure_interval_seconds = std::max(uint32_t{1}, silence);
  aws_http_connection_manager_options pool = {};
  pool.bootstrap = parts.bootstrap;
  pool.initial_window_size = SIZE_MAX;
  pool.socket_options = &socket;
  pool.response_first_byte_timeout_ms = static_cast<uint64_t>(absl::ToInt64Milliseconds(options.silence));
  pool.monitoring_options = &monitoring;
  pool.proxy_ev_settings = &proxies;
  const std::string host = address.path_style ? address.host : absl::StrCat(address.bucket, ".", address.host);
  pool.host = CursorOf(host);
  pool.port = address.port;
  pool.max_connections = static_cast<size_t>(options.connections);
  pool.shutdown_complete_callback = Ended;
  pool.shutdown_complete_user_data = &parts.manager_ended;
  // Below the time after which stores close a connection that is idle.
  pool.max_connection_idle_in_milliseconds = 15000;
  aws_tls_connection_options connection;
  if (address.tls) {
    aws_tls_connection_options_init_from_ctx(&connection, parts.tls);
    aws_tls_connection_options_set_server_name(&connection, allocator, &pool.host);
    aws_tls_connection_options_set_alpn_list(&connection, allocator, "http/1.1");
    pool.tls_connection_options = &connection;
  }
  parts.manager = aws_http_connection_manager_new(allocator, &pool);
  if (address.tls) aws_tls_connection_options_clean_up(&connection);
  if (parts.manager == nullptr) return refused("connections");
  return wire;
}

S3Answer S3Wire::Send(const S3Request& request) {
  aws_allocator* const allocator = Allocator();
  S3Answer unsent;
  const auto signing = std::make_shared<Signing>();
  signing->message.reset(aws_http_message_new_request(allocator));
  aws_http_message* const message = signing->message.get();
  const std::string path = absl::StrCat(address_.PathOf(request.key), request.query.empty() ? "" : "?", request.query);
  aws_http_message_set_request_method(message, CursorOf(request.method));
  aws_http_message_set_request_path(message, CursorOf(path));
  const auto add = [&](std::string_view name, std::string_view value) {
    aws_http_header header = {};
    header.name = CursorOf(name);
    header.value = CursorOf(value);
    aws_http_message_add_header(message, header);
  };
  add("Host", address_.HostHeader());
  add("User-Agent", "cairn");
  for (const auto& [name, value] : request.headers) add(name, value);
  if (!request.body.empty() || request.method == "PUT" || request.method == "POST") {
    add("Content-Length", absl::StrCat(request.body.size()));
  }

  signing->signable.reset(aws_signable_new_http_request(allocator, message));
  aws_signing_config_aws config = {};
  config.config_type = AWS_SIGNING_CONFIG_AWS;
  config.algorithm = AWS_SIGNING_ALGORITHM_V4;
  config.signature_type = AWS_ST_HTTP_REQUEST_HEADERS;
  config.region = CursorOf(address_.region);
  config.service = CursorOf("s3");
  aws_date_time_init_now(&config.date);
  // To digest what is sent would cost more than to send it. Its checksum goes along, and https protects both; with http
  // whoever is between could change both.
  config.signed_body_value = g_aws_signed_body_value_unsigned_payload;
  config.signed_body_header = AWS_SBHT_X_AMZ_CONTENT_SHA256;
  const std::unique_ptr<aws_credentials_provider, decltype(&aws_credentials_provider_release)> credentials(
      parts_->Credentials(), &aws_credentials_provider_release);
  config.credentials_provider = credentials.get();
  std::optional<int> error;
  void* const held = Held(signing);
  if (aws_sign_request_aws(allocator, signing->signable.get(), reinterpret_cast<aws_signing_config_base*>(&config),
                           OnSigned, held) == AWS_OP_SUCCESS) {
    error = signing->ended.WaitFor(options_.silence, request.stop);
  } else {
    error = aws_last_error();
    TakeHeld<Signing>(held);
  }
  const bool stopped = request.stop != nullptr && *request.stop;
  if (!error.has_value() && !stopped) parts_->Replace(credentials.get());
  if (error != 0) {
    unsent.no_credentials = true;
    unsent.trouble =
        absl::StrCat("no credentials: ", error.has_value() ? ErrorText(*error)
                                                           : "who gives them does not answer (web identity, container "
                                                             "or machine)");
    return unsent;
  }
  if (!request.body.empty()) {
    const aws_byte_cursor body = CursorOf(request.body);
    aws_input_stream* const stream = aws_input_stream_new_from_cursor(allocator, &body);
    aws_http_message_set_body_stream(message, stream);
    aws_input_stream_release(stream);
  }

  const auto connecting = std::make_shared<Connecting>();
  connecting->manager = parts_->manager;
  aws_http_connection_manager_acquire_connection(parts_->manager, OnConnected, Held(connecting));
  error = connecting->ended.WaitFor(options_.silence + kTlsBlinding, request.stop);
  if (!error.has_value() && !connecting->GiveUp()) error = connecting->ended.Wait();
  if (error != 0) {
    unsent.trouble = absl::StrCat("no connection to ", address_.HostHeader(), ": ",
                                  error.has_value() ? ErrorText(*error) : "nothing answers there, or a proxy does not");
    return unsent;
  }
  Exchange exchange;
  exchange.request = &request;
  S3Answer& answer = exchange.answer;
  aws_http_make_request_options options = {};
  options.self_size = sizeof(options);
  options.request = message;
  options.user_data = &exchange;
  options.on_response_headers = OnHeaders;
  options.on_response_body = OnBody;
  options.on_complete = OnComplete;
  aws_http_connection* const connection = connecting->connection;
  aws_http_stream* const stream = aws_http_connection_make_request(connection, &options);
  std::string why;
  if (stream != nullptr && aws_http_stream_activate(stream) == AWS_OP_SUCCESS) {
    answer.sent = true;
    const uint64_t bytes = request.body.size() + (request.content ? request.max_bytes : 0);
    error = exchange.ended.WaitFor(options_.longest + absl::Seconds(bytes / kLeastBytesPerSecond), request.stop);
    if (!error.has_value()) {
      why = request.stop != nullptr && *request.stop ? "it was stopped" : "the answer did not end in time";
      aws_http_connection_close(connection);
      error = exchange.ended.Wait();
      if (error == 0) error = AWS_ERROR_HTTP_CONNECTION_CLOSED;
    }
  } else {
    error = aws_last_error();
  }
  if (stream != nullptr) aws_http_stream_release(stream);
  aws_http_connection_manager_release_connection(parts_->manager, connection);
  if (error != 0) {
    answer.status = 0;
    answer.trouble =
        absl::StrCat("the connection to ", address_.HostHeader(), " broke: ", why.empty() ? ErrorText(*error) : why);
  }
  return answer;
}

}  // namespace cairn
