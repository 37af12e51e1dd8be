// Decides what an agent does when a call to its coordinator has failed.
#ifndef CAIRN_AGENT_RUNTIME_LINK_RECOVERY_H_
#define CAIRN_AGENT_RUNTIME_LINK_RECOVERY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/runtime/link_limits.h"

namespace cairn {

// Decides by the reasons of the errors. It is a function of errors and `now`. Not thread-safe.
class LinkRecovery {
 public:
  // A conflict that may end by itself is asked again for this long: see CoordinatorLinkOptions::register_timeout.
  explicit LinkRecovery(absl::Duration register_timeout) : register_timeout_(register_timeout) {}

  struct Next {
    // The coordinator will never take this agent, which must end. Nothing else is set then.
    bool give_up = false;
    // The coordinator does not know the agent (any more): it must register again.
    bool register_again = false;
    // All agents of the job may have lost the coordinator at the same instant, so each takes its turn to register.
    bool take_turn = false;
    // The coordinator cannot be reached over this connection; another one is needed.
    bool reconnect = false;
    // The error is another one than the last that was to be told.
    bool tell = false;
    // The next call waits so long at most; 0 if it waits for nothing but its turn.
    absl::Duration pause;
  };
  // A call has failed; `registered` says what the agent was when it made the call.
  Next OnFailed(const absl::Status& error, bool registered, absl::Time now);
  // A call was answered. Returns true if the last error that was told is over now.
  bool OnAnswered();

 private:
  const absl::Duration register_timeout_;
  absl::Duration pause_ = link_limits::kFirstPause;
  std::string told_;
  absl::Time conflict_since_ = absl::InfiniteFuture();
  bool was_answered_ = false;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_RUNTIME_LINK_RECOVERY_H_
