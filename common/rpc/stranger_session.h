// Speaks HTTP/2 with a stranger: tells whether this process is healthy, and refuses every other call.
//
// gRPC's own server takes memory for whatever a caller sends: headers without an end, messages without an end, calls,
// answers that nobody reads. Here all of it is bounded, so a stranger is served by this and never by gRPC. nghttp2
// reads the frames; the limits are counted here, because they hold for whatever the bytes say.
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

// One connection. It knows no socket and no clock. Not thread-safe.
class StrangerSession {
 public:
  // A connection ends when the stranger has sent so many bytes. A probe of Kubernetes sends some hundred.
  static constexpr size_t kMostBytes = size_t{128} << 10;
  // At most so many bytes are taken at once.
  static constexpr size_t kMostAtOnce = 4096;
  // Further calls at the same time are refused.
  static constexpr size_t kMostCalls = 8;

  // What strangers are told.
  struct Answers {
    absl::Status refusal;       // of every call but those for health
    const HealthBoard* health;  // may be null: then these are refused as well
  };

  // `answers` must outlive the session.
  explicit StrangerSession(const Answers& answers);
  ~StrangerSession();
  StrangerSession(const StrangerSession&) = delete;
  StrangerSession& operator=(const StrangerSession&) = delete;

  // Takes what the stranger has sent, kMostAtOnce bytes at most, and only if nothing is unsent: a stranger who does not
  // read is not heard. Returns whether the connection goes on. If not, what is unsent is the last that may be sent.
  bool Take(std::string_view bytes);
  // Whether a call of this connection waits for changes of the health; then Tell must be called after each.
  bool watches() const;
  void Tell();
  // Says that the connection ends (GOAWAY).
  void End();

  // What has to be sent.
  std::string_view unsent() const { return std::string_view(unsent_).substr(sent_); }
  // So many bytes of it have been sent.
  void Sent(size_t bytes);

 private:
  using Headers = std::vector<std::pair<std::string, std::string>>;
  struct Call {
    std::string path;
    size_t header_bytes = 0;
    std::string body;
    bool answered = false;
    std::optional<std::string> watched;  // the service, of a Watch
    int told = -1;                       // what it was told last
    std::string messages;                // that wait for being framed
    std::optional<Headers> trailers;     // end the call behind the messages
  };
  struct Callbacks;

  void OnHeaders(int32_t number, bool ended);
  void OnBody(int32_t number, std::string_view bytes);
  void OnEnd(int32_t number);
  void Answer(int32_t number, const absl::Status& status);
  void AnswerHealth(int32_t number, Call& call);
  void Tell(int32_t number, Call& call);
  // Has nghttp2 write its frames.
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
