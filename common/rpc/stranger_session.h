// Speaks HTTP/2 with a stranger: answers calls of the health service, and refuses every other call.
//
// gRPC's own server takes memory for endless headers, endless messages, any number of calls, and answers that the
// caller never reads. This class bounds all of that, so strangers are served by it and never by gRPC. nghttp2 parses
// the frames. The limits are counted here, on the raw bytes, so they hold for any input.
#ifndef CAIRN_COMMON_RPC_STRANGER_SESSION_H_
#define CAIRN_COMMON_RPC_STRANGER_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/rpc/health_board.h"

struct nghttp2_session;

namespace cairn {

// One connection. It uses no socket and no clock. Not thread-safe.
class StrangerSession {
 public:
  // The connection ends when the stranger has sent this many bytes. A Kubernetes probe sends some hundred.
  static constexpr size_t kMostBytes = size_t{128} << 10;
  // The maximum number of bytes of one Take.
  static constexpr size_t kMostAtOnce = 4096;
  // The maximum number of simultaneous calls. Further calls are refused.
  static constexpr size_t kMostCalls = 8;

  // The answers to strangers.
  struct Answers {
    absl::Status refusal;       // the error of every call except those of the health service
    const HealthBoard* health;  // null: calls of the health service are refused too
  };

  // `answers` must outlive the session.
  explicit StrangerSession(const Answers& answers);
  ~StrangerSession();
  StrangerSession(const StrangerSession&) = delete;
  StrangerSession& operator=(const StrangerSession&) = delete;

  // Takes bytes from the stranger, kMostAtOnce at most. Must only be called while unsent() is empty, so a stranger who
  // does not read cannot send more. Returns whether the connection continues. If not, the caller sends unsent() and
  // closes the connection.
  bool Take(std::string_view bytes);
  // Returns whether a Watch call waits for changes of the health. Then Tell must be called after each change.
  bool watches() const;
  void Tell();
  // Adds a GOAWAY frame to unsent().
  void End();

  // Returns the bytes that must be sent next.
  std::string_view unsent() const { return std::string_view(unsent_).substr(sent_); }
  // Removes the first `bytes` bytes of unsent(), which have been sent.
  void Sent(size_t bytes);

 private:
  using Headers = std::vector<std::pair<std::string, std::string>>;
  struct Call {
    std::string path;
    size_t header_bytes = 0;
    std::string body;
    bool answered = false;
    std::optional<std::string> watched;  // the service that a Watch call waits for
    int told = -1;                       // the last answer to that Watch; -1: none yet
    std::string messages;                // that are not framed yet
    std::optional<Headers> trailers;     // if set, they end the call after the messages
  };
  struct Callbacks;

  void OnHeaders(int32_t number, bool ended);
  void OnBody(int32_t number, std::string_view bytes);
  void OnEnd(int32_t number);
  void Answer(int32_t number, const absl::Status& status);
  void AnswerHealth(int32_t number, Call& call);
  void Tell(int32_t number, Call& call);
  // Makes nghttp2 write its frames to `unsent_`.
  void Write();

  const Answers& answers_;
  nghttp2_session* session_ = nullptr;
  std::map<int32_t, Call> calls_;
  size_t received_ = 0;
  bool broken_ = false;
  std::string unsent_;
  size_t sent_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_STRANGER_SESSION_H_
