#include "store/s3/http_pool.h"

#include <aws/http/connection.h>
#include <aws/http/connection_manager.h>
#include <aws/http/proxy.h>
#include <aws/http/request_response.h>
#include <aws/http/statistics.h>
#include <aws/io/socket.h>
#include <aws/io/statistics.h>
#include <aws/io/stream.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"
#include "store/s3/aws_event.h"
#include "store/s3/http_status.h"

namespace cairn {
namespace {

constexpr uint64_t kMaxHeaderBytes = 64 << 10;
constexpr uint64_t kLeastBytesPerSecond = 256 << 10;
constexpr uint32_t kConnectTimeoutMs = 5000;
// s2n tells of a failed handshake only after a random time up to this, so that an attacker learns nothing from it.
constexpr absl::Duration kTlsBlinding = absl::Seconds(30);

using Message = std::unique_ptr<aws_http_message, decltype(&aws_http_message_release)>;

// One request that is under way. The members are touched by the thread of its connection until `ended`.
struct Exchange {
  const HttpRequest* request = nullptr;
  HttpAnswer answer;
  uint64_t header_bytes = 0;
  bool head_ended = false;
  AwsEvent ended;
};

absl::Status EndlessHead() { return MakeError(Reason::kMessageTooLarge, "the store answers with headers without end"); }

// Looks each second at what has come for requests whose answers have no whole head yet. The libraries keep a line until
// its end comes, so one without an end would take memory until the request is given up.
class HeadWatch {
 public:
  void Begin(aws_http_connection* connection, Exchange& exchange) {
    MutexLock lock(mutex_);
    watched_[ChannelOf(connection)] = {connection, &exchange};
  }
  void End(aws_http_connection* connection) {
    MutexLock lock(mutex_);
    watched_.erase(ChannelOf(connection));
  }

  // As aws_http_statistics_observer_fn, on the thread of the connection. `data` is the watch.
  static void OnStatistics(size_t channel, const aws_array_list* statistics, void* data) {
    static_cast<HeadWatch*>(data)->Look(channel, statistics);
  }

 private:
  struct Watched {
    aws_http_connection* connection = nullptr;
    Exchange* exchange = nullptr;
    bool seen = false;  // what is told first may have come for the request before
    uint64_t bytes = 0;
  };

  static size_t ChannelOf(aws_http_connection* connection) {
    return reinterpret_cast<size_t>(aws_http_connection_get_channel(connection));
  }

  void Look(size_t channel, const aws_array_list* statistics) {
    MutexLock lock(mutex_);
    const auto at = watched_.find(channel);
    if (at == watched_.end() || at->second.exchange->head_ended) return;
    Watched& watched = at->second;
    for (size_t i = 0; watched.seen && i < aws_array_list_length(statistics); ++i) {
      aws_crt_statistics_base* one = nullptr;
      aws_array_list_get_at(statistics, static_cast<void*>(&one), i);
      if (one->category != AWSCRT_STAT_CAT_SOCKET) continue;
      watched.bytes += reinterpret_cast<const aws_crt_statistics_socket*>(one)->bytes_read;
    }
    watched.seen = true;
    if (watched.bytes <= kMaxHeaderBytes) return;
    watched.exchange->answer.refused = EndlessHead();
    aws_http_connection_close(watched.connection);
  }

  Mutex mutex_;
  std::map<size_t, Watched> watched_ ABSL_GUARDED_BY(mutex_);
};

// A wait for a connection, which may come too late.
struct Connecting {
  aws_http_connection_manager* manager = nullptr;
  aws_http_connection* connection = nullptr;
  Mutex mutex;
  bool given_up ABSL_GUARDED_BY(mutex) = false;
  AwsEvent ended;

  // Returns false if the connection is there.
  bool GiveUp() {
    MutexLock lock(mutex);
    given_up = connection == nullptr;
    return given_up;
  }
};

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
        return EndlessHead();
      }
      std::string& value = exchange.answer.headers[absl::AsciiStrToLower(std::string(TextOf(headers[i].name)))];
      absl::StrAppend(&value, value.empty() ? "" : ", ", std::string(TextOf(headers[i].value)));
    }
    return absl::OkStatus();
  });
}

int OnHeadersDone(aws_http_stream*, aws_http_header_block block, void* data) {
  if (block == AWS_HTTP_HEADER_BLOCK_MAIN) static_cast<Exchange*>(data)->head_ended = true;
  return AWS_OP_SUCCESS;
}

int OnBody(aws_http_stream*, const aws_byte_cursor* bytes, void* data) {
  auto& exchange = *static_cast<Exchange*>(data);
  return TakePart(exchange, [&]() -> absl::Status {
    HttpAnswer& answer = exchange.answer;
    const HttpRequest& request = *exchange.request;
    const bool good = IsGood(answer.status);
    const bool to_caller = request.to != nullptr && good;
    if (to_caller && answer.status != kHttpPartialContent) {
      return MakeError(Reason::kStorageError, "the store answers with a whole object where a range was asked for");
    }
    const uint64_t received = to_caller ? answer.received : answer.body.size();
    const uint64_t max_bytes = good ? request.max_bytes : HttpRequest::kMaxWords;
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

Message MessageOf(const HttpRequest& request) {
  aws_allocator* const allocator = AwsAllocator();
  Message message(aws_http_message_new_request(allocator), &aws_http_message_release);
  aws_http_message_set_request_method(message.get(), CursorOf(request.method));
  aws_http_message_set_request_path(message.get(), CursorOf(request.target));
  for (const auto& [name, value] : request.headers) {
    aws_http_header header = {};
    header.name = CursorOf(name);
    header.value = CursorOf(value);
    aws_http_message_add_header(message.get(), header);
  }
  if (!request.body.empty()) {
    const aws_byte_cursor body = CursorOf(request.body);
    aws_input_stream* const stream = aws_input_stream_new_from_cursor(allocator, &body);
    aws_http_message_set_body_stream(message.get(), stream);
    aws_input_stream_release(stream);
  }
  return message;
}

}  // namespace

std::string HttpAnswer::Header(const std::string& name) const {
  const auto at = headers.find(name);
  return at == headers.end() ? "" : at->second;
}

struct HttpPool::Parts {
  HeadWatch heads;
  AwsEvent manager_ended;
  aws_http_connection_manager* manager = nullptr;

  // Returns false if a connection is held. Then the parts must stay.
  bool End() {
    constexpr absl::Duration kMost = absl::Seconds(2);
    if (manager == nullptr) return true;
    aws_http_connection_manager_release(manager);
    return manager_ended.WaitFor(kMost).has_value();
  }
};

HttpPool::HttpPool(const HttpServer& server, const Options& options)
    : server_(server), options_(options), parts_(std::make_unique<Parts>()) {}

HttpPool::~HttpPool() {
  if (parts_->End()) return;
  [[maybe_unused]] const Parts* const left_behind = parts_.release();
}

absl::StatusOr<std::unique_ptr<HttpPool>> HttpPool::Open(const AwsRuntime& runtime, const HttpServer& server,
                                                         const Options& options) {
  std::unique_ptr<HttpPool> made(new HttpPool(server, options));
  Parts& parts = *made->parts_;
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
  monitoring.statistics_observer_fn = HeadWatch::OnStatistics;
  monitoring.statistics_observer_user_data = &parts.heads;
  aws_http_connection_manager_options pool = {};
  pool.bootstrap = runtime.bootstrap();
  pool.initial_window_size = SIZE_MAX;
  pool.socket_options = &socket;
  pool.response_first_byte_timeout_ms = static_cast<uint64_t>(absl::ToInt64Milliseconds(options.silence));
  pool.monitoring_options = &monitoring;
  if (options.proxies) pool.proxy_ev_settings = &proxies;
  pool.host = CursorOf(server.host);
  pool.port = server.port;
  pool.max_connections = static_cast<size_t>(options.connections);
  pool.shutdown_complete_callback = Ended;
  pool.shutdown_complete_user_data = &parts.manager_ended;
  // Below the time after which stores close a connection that is idle.
  pool.max_connection_idle_in_milliseconds = 15000;
  aws_tls_connection_options connection;
  if (server.tls) {
    if (runtime.tls() == nullptr) return MakeError(Reason::kStorageError, "there are no certificates for TLS");
    aws_tls_connection_options_init_from_ctx(&connection, runtime.tls());
    aws_tls_connection_options_set_server_name(&connection, AwsAllocator(), &pool.host);
    aws_tls_connection_options_set_alpn_list(&connection, AwsAllocator(), "http/1.1");
    pool.tls_connection_options = &connection;
  }
  parts.manager = aws_http_connection_manager_new(AwsAllocator(), &pool);
  if (server.tls) aws_tls_connection_options_clean_up(&connection);
  if (parts.manager == nullptr) return AwsRefuses("connections");
  return made;
}

HttpAnswer HttpPool::Send(const HttpRequest& request) {
  const Message message = MessageOf(request);
  const auto connecting = std::make_shared<Connecting>();
  connecting->manager = parts_->manager;
  aws_http_connection_manager_acquire_connection(parts_->manager, OnConnected, Held(connecting));
  std::optional<int> error = connecting->ended.WaitFor(options_.silence + kTlsBlinding, request.stop);
  if (!error.has_value() && !connecting->GiveUp()) error = connecting->ended.Wait();
  Exchange exchange;
  exchange.request = &request;
  HttpAnswer& answer = exchange.answer;
  if (error != 0) {
    answer.trouble =
        absl::StrCat("no connection to ", server_.HostHeader(), ": ",
                     error.has_value() ? AwsErrorText(*error) : "nothing answers there, or a proxy does not");
    return std::move(exchange.answer);
  }
  aws_http_make_request_options options = {};
  options.self_size = sizeof(options);
  options.request = message.get();
  options.user_data = &exchange;
  options.on_response_headers = OnHeaders;
  options.on_response_header_block_done = OnHeadersDone;
  options.on_response_body = OnBody;
  options.on_complete = OnComplete;
  aws_http_connection* const connection = connecting->connection;
  aws_http_stream* const stream = aws_http_connection_make_request(connection, &options);
  parts_->heads.Begin(connection, exchange);
  std::string why;
  if (stream != nullptr && aws_http_stream_activate(stream) == AWS_OP_SUCCESS) {
    answer.sent = true;
    const uint64_t bytes = request.body.size() + request.wanted_bytes;
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
  parts_->heads.End(connection);
  if (stream != nullptr) aws_http_stream_release(stream);
  aws_http_connection_manager_release_connection(parts_->manager, connection);
  if (error != 0) {
    answer.status = 0;
    answer.trouble =
        absl::StrCat("the connection to ", server_.HostHeader(), " broke: ", why.empty() ? AwsErrorText(*error) : why);
  }
  return std::move(exchange.answer);
}

}  // namespace cairn
