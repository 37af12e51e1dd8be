#include "common/rpc/stranger_session.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

constexpr size_t kMostHeaderBytes = 8192;
// The body of a health request holds the name of a service.
constexpr size_t kMostBodyBytes = 512;
constexpr size_t kPrefixBytes = 5;  // before each gRPC message: a flag and the message's length
constexpr int kServiceUnknown = 3;  // HealthCheckResponse.ServingStatus
constexpr absl::string_view kHealth = "/grpc.health.v1.Health/";

// gRPC encodes texts in headers in this way (PROTOCOL-HTTP2.md).
std::string PercentEncoded(absl::string_view text) {
  std::string encoded;
  for (const char c : text) {
    if (absl::ascii_isprint(static_cast<unsigned char>(c)) && c != '%') {
      encoded += c;
    } else {
      absl::StrAppendFormat(&encoded, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

// Returns the service of a framed HealthCheckRequest; nothing if the body is none.
std::optional<std::string> ServiceIn(const std::string& body) {
  if (body.size() < kPrefixBytes || body[0] != 0) return std::nullopt;
  uint32_t length = 0;
  for (size_t i = 1; i < kPrefixBytes; ++i) length = length << 8 | static_cast<unsigned char>(body[i]);
  if (length != body.size() - kPrefixBytes) return std::nullopt;
  using google::protobuf::internal::WireFormatLite;
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(body.data()) + kPrefixBytes,
                                               static_cast<int>(length));
  std::string service;
  constexpr uint32_t kService = WireFormatLite::MakeTag(1, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  while (const uint32_t tag = input.ReadTag()) {
    uint32_t size = 0;
    if (tag == kService) {
      if (!input.ReadVarint32(&size) || !input.ReadString(&service, static_cast<int>(size))) return std::nullopt;
    } else if (!WireFormatLite::SkipField(&input, tag)) {
      return std::nullopt;
    }
  }
  return input.ConsumedEntireMessage() ? std::optional(service) : std::nullopt;
}

// Returns a framed HealthCheckResponse.
std::string HealthMessage(int status) { return std::string({0, 0, 0, 0, 2, 0x08, static_cast<char>(status)}); }

std::vector<std::pair<std::string, std::string>> StatusHeaders(const absl::Status& status) {
  std::vector<std::pair<std::string, std::string>> headers = {
      {"grpc-status", absl::StrCat(static_cast<int>(status.code()))}};
  if (status.ok()) return headers;
  headers.emplace_back("grpc-message", PercentEncoded(status.message()));
  headers.emplace_back("grpc-status-details-bin", absl::Base64Escape(StatusToProto(status).SerializeAsString()));
  return headers;
}

std::vector<nghttp2_nv> Views(const std::vector<std::pair<std::string, std::string>>& headers) {
  std::vector<nghttp2_nv> views;
  for (const auto& [name, value] : headers) {
    const auto bytes = [](const std::string& text) {
      return const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(text.data()));  // nghttp2 copies them
    };
    views.push_back({bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE});
  }
  return views;
}

const std::vector<std::pair<std::string, std::string>>& FirstHeaders() {
  static const auto* const headers =
      new std::vector<std::pair<std::string, std::string>>{{":status", "200"}, {"content-type", "application/grpc"}};
  return *headers;
}

}  // namespace

struct StrangerSession::Callbacks {
  static StrangerSession& Self(void* user) { return *static_cast<StrangerSession*>(user); }

  static int BeginHeaders(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
      Self(user).calls_[frame->hd.stream_id];
    }
    return 0;
  }
  static int Header(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_bytes,
                    const uint8_t* value, size_t value_bytes, uint8_t, void* user) {
    const auto call = Self(user).calls_.find(frame->hd.stream_id);
    if (call == Self(user).calls_.end()) return 0;
    call->second.header_bytes += name_bytes + value_bytes;
    if (call->second.header_bytes > kMostHeaderBytes) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;  // ends the call
    const absl::string_view key(reinterpret_cast<const char*>(name), name_bytes);
    if (key == ":path") call->second.path.assign(reinterpret_cast<const char*>(value), value_bytes);
    return 0;
  }
  static int Frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    const bool ended = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
      Self(user).OnHeaders(frame->hd.stream_id, ended);
    } else if ((frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) && ended) {
      Self(user).OnEnd(frame->hd.stream_id);
    }
    return 0;
  }
  static int Data(nghttp2_session*, uint8_t, int32_t number, const uint8_t* bytes, size_t length, void* user) {
    Self(user).OnBody(number, {reinterpret_cast<const char*>(bytes), length});
    return 0;
  }
  // If a call was answered before the stranger has ended its side, this ends the call.
  static int Written(nghttp2_session* session, const nghttp2_frame* frame, void*) {
    if (frame->hd.type == NGHTTP2_HEADERS && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 &&
        nghttp2_session_get_stream_remote_close(session, frame->hd.stream_id) == 0) {
      nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
    }
    return 0;
  }
  static int Closed(nghttp2_session*, int32_t number, uint32_t, void* user) {
    Self(user).calls_.erase(number);
    return 0;
  }
  // Gives nghttp2 the messages of a call, and then its trailers.
  static ssize_t Messages(nghttp2_session* session, int32_t number, uint8_t* bytes, size_t room, uint32_t* flags,
                          nghttp2_data_source*, void* user) {
    const auto found = Self(user).calls_.find(number);
    if (found == Self(user).calls_.end()) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    Call& call = found->second;
    const size_t taken = std::min(room, call.messages.size());
    std::memcpy(bytes, call.messages.data(), taken);
    call.messages.erase(0, taken);
    if (call.messages.empty() && call.trailers) {
      *flags = NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
      const std::vector<nghttp2_nv> views = Views(*call.trailers);
      nghttp2_submit_trailer(session, number, views.data(), views.size());
    } else if (taken == 0) {
      return NGHTTP2_ERR_DEFERRED;  // a Watch call with nothing to send
    }
    return static_cast<ssize_t>(taken);
  }
};

StrangerSession::StrangerSession(const Answers& answers) : answers_(answers) {
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_option* option = nullptr;
  if (nghttp2_session_callbacks_new(&callbacks) == 0 && nghttp2_option_new(&option) == 0) {
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, Callbacks::BeginHeaders);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, Callbacks::Header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, Callbacks::Frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, Callbacks::Data);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, Callbacks::Written);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, Callbacks::Closed);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_max_deflate_dynamic_table_size(option, 0);
    nghttp2_session_server_new2(&session_, callbacks, this, option);
  }
  nghttp2_option_del(option);
  nghttp2_session_callbacks_del(callbacks);
  if (session_ == nullptr) {
    broken_ = true;
    return;
  }
  const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, kMostCalls},
                                             {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kMostAtOnce},
                                             {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kMostHeaderBytes}};
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, std::size(settings));
  Write();
}

StrangerSession::~StrangerSession() { nghttp2_session_del(session_); }

bool StrangerSession::Take(std::string_view bytes) {
  received_ += bytes.size();
  if (received_ > kMostBytes) broken_ = true;
  if (broken_) return false;
  const ssize_t taken =
      nghttp2_session_mem_recv(session_, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  if (taken != static_cast<ssize_t>(bytes.size())) broken_ = true;
  Write();
  if (nghttp2_session_want_read(session_) == 0) broken_ = true;
  return !broken_;
}

void StrangerSession::Write() {
  const uint8_t* frames = nullptr;
  while (session_ != nullptr) {
    const ssize_t length = nghttp2_session_mem_send(session_, &frames);
    if (length < 0) broken_ = true;
    if (length <= 0) return;
    unsent_.append(reinterpret_cast<const char*>(frames), static_cast<size_t>(length));
  }
}

void StrangerSession::Sent(size_t bytes) {
  sent_ += bytes;
  if (sent_ < unsent_.size()) return;
  unsent_ = std::string();
  sent_ = 0;
  if (!broken_) Write();  // frames that became possible meanwhile
}

void StrangerSession::End() {
  if (session_ != nullptr) nghttp2_session_terminate_session(session_, NGHTTP2_NO_ERROR);
  Write();
}

void StrangerSession::OnHeaders(int32_t number, bool ended) {
  const auto found = calls_.find(number);
  if (found == calls_.end()) return;
  const std::string& path = found->second.path;
  const bool health =
      answers_.health != nullptr && (path == absl::StrCat(kHealth, "Check") || path == absl::StrCat(kHealth, "Watch"));
  // Any other call is refused at once, without its body.
  if (!health) return Answer(number, answers_.refusal);
  if (ended) OnEnd(number);
}

void StrangerSession::OnBody(int32_t number, std::string_view bytes) {
  const auto found = calls_.find(number);
  if (found == calls_.end() || found->second.answered) return;
  if (found->second.body.size() + bytes.size() > kMostBodyBytes) {
    return Answer(number, absl::ResourceExhaustedError("the name of a service is shorter"));
  }
  found->second.body += bytes;
}

void StrangerSession::OnEnd(int32_t number) {
  const auto found = calls_.find(number);
  if (found != calls_.end() && !found->second.answered) AnswerHealth(number, found->second);
}

void StrangerSession::Answer(int32_t number, const absl::Status& status) {
  calls_[number].answered = true;
  Headers headers = FirstHeaders();
  for (auto& header : StatusHeaders(status)) headers.push_back(std::move(header));
  const std::vector<nghttp2_nv> views = Views(headers);
  nghttp2_submit_response(session_, number, views.data(), views.size(), nullptr);
}

void StrangerSession::AnswerHealth(int32_t number, Call& call) {
  const std::optional<std::string> service = ServiceIn(call.body);
  if (!service) return Answer(number, absl::InternalError("this is no question for health"));
  call.answered = true;
  if (absl::EndsWith(call.path, "/Watch")) {
    call.watched = service;
    Tell(number, call);
  } else {
    const std::optional<bool> serving = answers_.health->Of(*service);
    if (!serving) return Answer(number, absl::NotFoundError("there is no such service"));
    call.messages = HealthMessage(*serving ? 1 : 2);
    call.trailers = StatusHeaders(absl::OkStatus());
  }
  const std::vector<nghttp2_nv> views = Views(FirstHeaders());
  nghttp2_data_provider messages = {};
  messages.read_callback = Callbacks::Messages;
  nghttp2_submit_response(session_, number, views.data(), views.size(), &messages);
}

void StrangerSession::Tell(int32_t number, Call& call) {
  const std::optional<bool> serving = answers_.health->Of(*call.watched);
  const int status = !serving ? kServiceUnknown : *serving ? 1 : 2;
  if (status == std::exchange(call.told, status)) return;
  call.messages = HealthMessage(status);  // replaces a message that was not framed yet
  nghttp2_session_resume_data(session_, number);
}

void StrangerSession::Tell() {
  if (broken_) return;
  for (auto& [number, call] : calls_) {
    if (call.watched) Tell(number, call);
  }
  // A stranger that has not read the last bytes gets the newest state later.
  if (unsent().empty()) Write();
}

bool StrangerSession::watches() const {
  return std::any_of(calls_.begin(), calls_.end(), [](const auto& call) { return call.second.watched.has_value(); });
}

}  // namespace cairn
