#include "common/rpc/stranger_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;

constexpr std::string_view kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
// The kinds of frames, RFC 9113, section 6.
enum FrameKind : char { kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6, kWindowUpdate = 8, kMore = 9 };
constexpr char kEndStream = 1, kEndHeaders = 4;

std::string Frame(FrameKind kind, char flags, uint32_t stream, std::string_view body) {
  const auto byte = [](size_t value) { return static_cast<char>(value & 0xff); };
  std::string frame = {byte(body.size() >> 16), byte(body.size() >> 8), byte(body.size()), kind,        flags,
                       byte(stream >> 24),      byte(stream >> 16),     byte(stream >> 8), byte(stream)};
  frame += body;
  return frame;
}

// A header as RFC 7541 has it: literal, without indexing, with a new name.
std::string Header(std::string_view name, std::string_view value) {
  const auto text = [](std::string_view bytes) {
    EXPECT_LT(bytes.size(), 127);
    return std::string(1, static_cast<char>(bytes.size())) + std::string(bytes);
  };
  return std::string(1, '\0') + text(name) + text(value);
}

std::string CallHeaders(std::string_view path) {
  return Header(":method", "POST") + Header(":scheme", "http") + Header(":path", path) + Header(":authority", "me") +
         Header("content-type", "application/grpc") + Header("te", "trailers");
}

// A call of gRPC as one piece; without a message it is left open.
std::string Call(uint32_t stream, std::string_view path, std::optional<std::string> message = std::nullopt) {
  std::string frames = Frame(kHeaders, kEndHeaders, stream, CallHeaders(path));
  if (message) {
    const std::string prefix = {0, 0, 0, 0, static_cast<char>(message->size())};
    frames += Frame(kData, kEndStream, stream, prefix + *message);
  }
  return frames;
}

// The message of a question for a service's health.
std::string Question(std::string_view service) {
  return service.empty() ? "" : std::string({0x0a, static_cast<char>(service.size())}) + std::string(service);
}

// What a caller has heard of one call.
struct Heard {
  std::map<std::string, std::string> headers;  // and trailers
  std::string body;
  bool ended = false;
};

// Reads what the session writes, by nghttp2's client.
class Listener {
 public:
  Listener() {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_bytes,
                      const uint8_t* value, size_t value_bytes, uint8_t, void* self) {
          static_cast<Listener*>(self)->heard_[frame->hd.stream_id].headers[std::string(name, name + name_bytes)] =
              std::string(value, value + value_bytes);
          return 0;
        });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        callbacks, [](nghttp2_session*, uint8_t, int32_t stream, const uint8_t* bytes, size_t length, void* self) {
          static_cast<Listener*>(self)->heard_[stream].body.append(bytes, bytes + length);
          return 0;
        });
    nghttp2_session_callbacks_set_on_frame_recv_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
          if (frame->hd.type == NGHTTP2_GOAWAY) static_cast<Listener*>(self)->told_to_go_ = true;
          if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 &&
              (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS)) {
            static_cast<Listener*>(self)->heard_[frame->hd.stream_id].ended = true;
          }
          return 0;
        });
    nghttp2_session_client_new(&session_, callbacks, this);
    nghttp2_session_callbacks_del(callbacks);
    // It must know of the settings and calls whose answers it reads.
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, nullptr, 0);
    for (int call = 0; call < 64; ++call) {
      const auto bytes = [](const char* text) { return reinterpret_cast<uint8_t*>(const_cast<char*>(text)); };
      const nghttp2_nv request[] = {{bytes(":method"), bytes("POST"), 7, 4, 0},
                                    {bytes(":scheme"), bytes("http"), 7, 4, 0},
                                    {bytes(":authority"), bytes("me"), 10, 2, 0},
                                    {bytes(":path"), bytes("/"), 5, 1, 0}};
      nghttp2_submit_request(session_, nullptr, request, std::size(request), nullptr, nullptr);
    }
    const uint8_t* ignored = nullptr;
    while (nghttp2_session_mem_send(session_, &ignored) > 0) {
    }
  }
  ~Listener() { nghttp2_session_del(session_); }

  void Hear(std::string_view bytes) {
    EXPECT_EQ(nghttp2_session_mem_recv(session_, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()),
              static_cast<ssize_t>(bytes.size()));
  }
  Heard& operator[](int32_t stream) { return heard_[stream]; }
  bool told_to_go() const { return told_to_go_; }

 private:
  nghttp2_session* session_ = nullptr;
  std::map<int32_t, Heard> heard_;
  bool told_to_go_ = false;
};

class StrangerSessionTest : public ::testing::Test {
 protected:
  // Sends bytes as the gate does: in pieces, and reads all answers. Returns whether the connection continues.
  bool Say(std::string_view bytes) {
    while (true) {
      const std::string unsent(session_.unsent());
      most_unsent_ = std::max(most_unsent_, unsent.size());
      listener_.Hear(unsent);
      session_.Sent(unsent.size());
      if (!session_.unsent().empty()) continue;
      if (bytes.empty()) return true;
      const size_t taken = std::min(bytes.size(), StrangerSession::kMostAtOnce);
      const bool goes_on = session_.Take(bytes.substr(0, taken));
      bytes.remove_prefix(taken);
      if (!goes_on) {
        listener_.Hear(session_.unsent());
        return false;
      }
    }
  }
  bool Begin() { return Say(std::string(kPreface) + Frame(kSettings, 0, 0, "")); }
  // Sends `frames` again and again until the connection ends. Returns the number of bytes sent.
  size_t SaysUntilTheEnd(const std::string& frames) {
    size_t said = 0;
    while (said < (size_t{1} << 26) && Say(frames)) said += frames.size();
    return said;
  }

  HealthBoard health_;
  StrangerSession::Answers answers_ = {MakeError(Reason::kBadToken, "a token: 100% needed\n"), &health_};
  StrangerSession session_{answers_};
  Listener listener_;
  size_t most_unsent_ = 0;
};

TEST_F(StrangerSessionTest, Take_ACallOfOurs_IsRefusedWithTheReasonBeforeItsMessage) {
  ASSERT_TRUE(Begin());
  ASSERT_TRUE(Say(Call(1, "/cairn.v1.CheckpointService/CreateCheckpoint")));
  const Heard& heard = listener_[1];
  EXPECT_TRUE(heard.ended);
  EXPECT_EQ(heard.headers.at(":status"), "200");
  EXPECT_EQ(heard.headers.at("content-type"), "application/grpc");
  EXPECT_EQ(heard.headers.at("grpc-status"), "16");
  EXPECT_EQ(heard.headers.at("grpc-message"), "a token: 100%25 needed%0A");
  std::string details;
  ASSERT_TRUE(absl::Base64Unescape(heard.headers.at("grpc-status-details-bin"), &details));
  google::rpc::Status status;
  ASSERT_TRUE(status.ParseFromString(details));
  EXPECT_EQ(ReasonOf(StatusFromProto(status)), Reason::kBadToken);
}

TEST_F(StrangerSessionTest, Check_EachKindOfService_IsAnswered) {
  health_.Set("yes", true);
  health_.Set("no", false);
  ASSERT_TRUE(Begin());
  ASSERT_TRUE(Say(Call(1, "/grpc.health.v1.Health/Check", Question("")) +
                  Call(3, "/grpc.health.v1.Health/Check", Question("yes")) +
                  Call(5, "/grpc.health.v1.Health/Check", Question("no")) +
                  Call(7, "/grpc.health.v1.Health/Check", Question("nobody"))));
  const std::string serving({0, 0, 0, 0, 2, 8, 1}), not_serving({0, 0, 0, 0, 2, 8, 2});
  EXPECT_EQ(listener_[1].body, serving);
  EXPECT_EQ(listener_[3].body, serving);
  EXPECT_EQ(listener_[5].body, not_serving);
  for (const int32_t call : {1, 3, 5}) {
    EXPECT_TRUE(listener_[call].ended);
    EXPECT_EQ(listener_[call].headers.at("grpc-status"), "0");
  }
  EXPECT_EQ(listener_[7].headers.at("grpc-status"), "5");
}

TEST_F(StrangerSessionTest, Check_ManyOneAfterTheOther_AreAllAnswered) {
  ASSERT_TRUE(Begin());
  for (uint32_t call = 1; call < 100; call += 2) {
    ASSERT_TRUE(Say(Call(call, "/grpc.health.v1.Health/Check", Question(""))));
    EXPECT_EQ(listener_[static_cast<int32_t>(call)].headers["grpc-status"], "0");
  }
}

TEST_F(StrangerSessionTest, Check_NoQuestion_IsAnErrorOfTheCallOnly) {
  ASSERT_TRUE(Begin());
  ASSERT_TRUE(Say(Call(1, "/grpc.health.v1.Health/Check", "\x0a\x7f") +
                  Call(3, "/grpc.health.v1.Health/Check", "\xff\xff\xff") +
                  Frame(kHeaders, kEndHeaders | kEndStream, 5, CallHeaders("/grpc.health.v1.Health/Check")) +
                  Call(7, "/grpc.health.v1.Health/Check", Question(""))));
  for (const int32_t call : {1, 3, 5}) EXPECT_EQ(listener_[call].headers.at("grpc-status"), "13");
  EXPECT_EQ(listener_[7].headers.at("grpc-status"), "0");
}

TEST_F(StrangerSessionTest, Check_AnEndlessName_IsRefused) {
  ASSERT_TRUE(Begin());
  ASSERT_TRUE(Say(Frame(kHeaders, kEndHeaders, 1, CallHeaders("/grpc.health.v1.Health/Check")) +
                  Frame(kData, 0, 1, std::string(600, 'x'))));
  EXPECT_TRUE(listener_[1].ended);
  EXPECT_EQ(listener_[1].headers.at("grpc-status"), "8");
}

TEST_F(StrangerSessionTest, Watch_TheHealthChanges_EachChangeIsToldOnce) {
  ASSERT_TRUE(Begin());
  EXPECT_FALSE(session_.watches());
  ASSERT_TRUE(Say(Call(1, "/grpc.health.v1.Health/Watch", Question("mine"))));
  EXPECT_TRUE(session_.watches());
  std::string told({0, 0, 0, 0, 2, 8, 3});  // the service is not known
  EXPECT_EQ(listener_[1].body, told);
  for (const auto& [serving, status] : {std::pair(true, '\1'), std::pair(true, '\0'), std::pair(false, '\2')}) {
    health_.Set("mine", serving);
    session_.Tell();
    ASSERT_TRUE(Say(""));
    if (status != 0) told += std::string({0, 0, 0, 0, 2, 8, status});
    EXPECT_EQ(listener_[1].body, told);
  }
  EXPECT_FALSE(listener_[1].ended);
}

TEST_F(StrangerSessionTest, Watch_TheStrangerReadsNothing_HearsTheNewestOnly) {
  ASSERT_TRUE(Begin());
  ASSERT_TRUE(Say(Call(1, "/grpc.health.v1.Health/Watch", Question(""))));
  ASSERT_TRUE(session_.Take(Frame(kPing, 0, 0, "12345678")));
  const size_t before = session_.unsent().size();
  ASSERT_GT(before, 0);
  for (int i = 0; i < 1001; ++i) {
    health_.SetAll(i % 2 == 1);
    session_.Tell();
  }
  EXPECT_EQ(session_.unsent().size(), before) << "nothing piles up";
  ASSERT_TRUE(Say(""));
  EXPECT_EQ(listener_[1].body, std::string({0, 0, 0, 0, 2, 8, 1, 0, 0, 0, 0, 2, 8, 2}));
}

TEST_F(StrangerSessionTest, Take_NoHealthIsTold_RefusesThatAsWell) {
  const StrangerSession::Answers silent = {MakeError(Reason::kPeerUid, "another user"), nullptr};
  StrangerSession session(silent);
  Listener listener;
  listener.Hear(session.unsent());
  session.Sent(session.unsent().size());
  ASSERT_TRUE(session.Take(std::string(kPreface) + Frame(kSettings, 0, 0, "") +
                           Call(1, "/grpc.health.v1.Health/Check", Question(""))));
  listener.Hear(session.unsent());
  EXPECT_EQ(listener[1].headers.at("grpc-status"), "7");
}

TEST_F(StrangerSessionTest, End_TellsTheStranger) {
  ASSERT_TRUE(Begin());
  session_.End();
  listener_.Hear(session_.unsent());
  EXPECT_TRUE(listener_.told_to_go());
}

TEST_F(StrangerSessionTest, Take_NoHttp2_EndsTheConnection) {
  EXPECT_FALSE(Say("POST / HTTP/1.1\r\nHost: me\r\n\r\n      "));
}

// Whatever a stranger sends endlessly, the connection ends after kMostBytes, and few bytes ever wait to be sent.
TEST_F(StrangerSessionTest, Take_HeadersWithoutAnEnd_EndsTheConnection) {
  ASSERT_TRUE(Begin());
  ASSERT_TRUE(Say(Frame(kHeaders, 0, 1, CallHeaders("/"))));
  EXPECT_LE(SaysUntilTheEnd(Frame(kMore, 0, 1, Header("x", std::string(100, 'x')))), StrangerSession::kMostBytes);
}

TEST_F(StrangerSessionTest, Take_TooManyHeaders_EndsTheCall) {
  ASSERT_TRUE(Begin());
  std::string headers = CallHeaders("/grpc.health.v1.Health/Check");
  for (int i = 0; i < 90; ++i) headers += Header("x", std::string(100, 'x'));
  ASSERT_TRUE(Say(Frame(kHeaders, kEndHeaders, 1, headers) + Call(3, "/grpc.health.v1.Health/Check", Question(""))));
  EXPECT_TRUE(listener_[1].headers.empty());
  EXPECT_EQ(listener_[3].headers.at("grpc-status"), "0");
}

TEST_F(StrangerSessionTest, Take_CallsWithoutAnEnd_EndsTheConnectionAndKeepsFew) {
  ASSERT_TRUE(Begin());
  uint32_t call = 1;
  size_t said = 0;
  for (bool goes_on = true; goes_on; call += 2) {
    const std::string frames = Call(call, "/grpc.health.v1.Health/Watch", Question(""));
    goes_on = Say(frames);
    said += frames.size();
    ASSERT_LT(said, 2 * StrangerSession::kMostBytes);
  }
  EXPECT_LT(most_unsent_, 16'384);
  size_t answered = 0;
  for (uint32_t each = 1; each < call; each += 2)
    answered += listener_[static_cast<int32_t>(each)].body.empty() ? 0 : 1;
  EXPECT_EQ(answered, StrangerSession::kMostCalls);
}

TEST_F(StrangerSessionTest, Take_ManyCallsInOnePiece_AnswersFewOfThem) {
  ASSERT_TRUE(Begin());
  std::string calls;
  for (uint32_t call = 1; calls.size() < StrangerSession::kMostAtOnce - 200; call += 2) calls += Call(call, "/x");
  ASSERT_TRUE(session_.Take(calls));
  EXPECT_LT(session_.unsent().size(), 16'384);
}

TEST_F(StrangerSessionTest, Take_PingsSettingsAndWindowsWithoutAnEnd_EndsTheConnection) {
  for (const std::string& frame :
       {Frame(kPing, 0, 0, "12345678"), Frame(kSettings, 0, 0, ""),
        Frame(kWindowUpdate, 0, 0, std::string("\0\0\0\1", 4)), Frame(kReset, 0, 1, std::string("\0\0\0\0", 4))}) {
    StrangerSession session(answers_);
    size_t said = 0;
    std::string words = std::string(kPreface) + Frame(kSettings, 0, 0, "");
    size_t most = 0;
    while (session.Take(words) && said < 2 * StrangerSession::kMostBytes) {
      said += words.size();
      most = std::max(most, session.unsent().size());
      session.Sent(session.unsent().size());
      words.clear();
      while (words.size() + frame.size() <= StrangerSession::kMostAtOnce) words += frame;
    }
    EXPECT_LE(said, StrangerSession::kMostBytes);
    EXPECT_LT(most, 16'384);
  }
}

TEST_F(StrangerSessionTest, Take_MessagesWithoutAnEnd_EndsTheConnection) {
  ASSERT_TRUE(Begin());
  ASSERT_TRUE(Say(Call(1, "/cairn.v1.AgentCoordinationService/RegisterAgent")));
  EXPECT_LE(SaysUntilTheEnd(Frame(kData, 0, 1, std::string(1000, 'x'))), StrangerSession::kMostBytes);
}

}  // namespace
}  // namespace cairn
