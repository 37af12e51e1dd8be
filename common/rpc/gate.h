// Stands in front of a gRPC server: takes the connections of its port, and lets through only those that have proven
// themselves. What others may hold of this process is bounded (stranger_table.h, stranger_session.h), whatever they
// send.
#ifndef CAIRN_COMMON_RPC_GATE_H_
#define CAIRN_COMMON_RPC_GATE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/file/unique_fd.h"
#include "common/rpc/acceptor.h"
#include "common/rpc/peer_group.h"
#include "common/rpc/peer_keys.h"
#include "common/rpc/peer_proof.h"
#include "common/rpc/stranger_session.h"
#include "common/rpc/stranger_table.h"

namespace cairn {

struct GateOptions {
  // Decides by who is at the other end of a new connection whether it is let through before it says anything. Null:
  // none is.
  std::function<bool(int connection)> knows;
  // Returns the keys by which peers prove themselves now; null if there are none yet, and nobody can. Unset: there is
  // no proof here.
  std::function<std::shared_ptr<const PeerKeys>()> keys;
  // Lets whoever begins to speak HTTP/2 through, without a proof (--insecure).
  bool insecure = false;
  // What strangers are told; the health must outlive the gate.
  StrangerSession::Answers answers;
  // Is given each connection that is let through. What it has sent after its proof is still to be read.
  std::function<void(int listener, UniqueFd connection)> passed;
};

class Gate {
 public:
  // A connection has so long to prove itself.
  static constexpr absl::Duration kProofTime = absl::Seconds(5);
  // A connection of a stranger who asks for the health ends after this time; so does a Watch, which is then made anew.
  static constexpr absl::Duration kSessionTime = absl::Minutes(1);
  // So many strangers may ask for the health at once.
  static constexpr size_t kMostSessions = 32;

  // The clock must outlive the gate. RESOURCE_EXHAUSTED (MEMORY_LIMIT): the process has no descriptor left.
  static absl::StatusOr<std::unique_ptr<Gate>> Make(GateOptions options, const Clock& clock);

  // Serves these listeners, which must not block, until Stop. Then all strangers' connections are closed.
  void Run(const std::vector<int>& listeners);
  // Both may be called by any thread: what strangers are told of the health may have changed, or the time has been set
  // forward; and the end of Run.
  void Nudge();
  void Stop();

 private:
  // A connection that was not let through, or not yet. It is in one of the two tables.
  struct Stranger {
    UniqueFd connection;
    int listener = -1;
    StrangerTable::Number number = 0;
    std::unique_ptr<ServerProof> proof;        // while it proves itself
    size_t wanted = 0;                         // by the proof
    std::unique_ptr<StrangerSession> session;  // if it speaks HTTP/2
    bool writing = false;                      // it is waited for until it reads
  };
  // The strangers of one kind.
  struct Room {
    StrangerTable table;
    absl::flat_hash_map<StrangerTable::Number, int> connections;
  };
  enum class Turn { kStays, kGoes, kPasses };

  Gate(GateOptions options, const Clock& clock, UniqueFd epoll, UniqueFd stop, UniqueFd nudge);

  bool Watch(int descriptor, uint32_t events, int operation) const;
  void Welcome(int listener, UniqueFd connection);
  // Gives a stranger a place of the room. False: there is none.
  bool Enter(Room& room, Stranger& stranger);
  Room& RoomOf(const Stranger& stranger) { return stranger.session == nullptr ? unproven_ : sessions_; }

  void Serve(int connection, uint32_t events);
  Turn Continue(Stranger& stranger, uint32_t events);
  // Looks at the first bytes, without reading them.
  Turn Classify(Stranger& stranger);
  Turn BeginSession(Stranger& stranger);
  Turn ContinueProof(Stranger& stranger);
  Turn ContinueSession(Stranger& stranger, uint32_t events);
  Turn SendOfSession(Stranger& stranger);

  void Close(int connection);
  void CloseExpired();
  void TellWatchers();
  int TimeToWait() const;
  void LogRefusals();

  const GateOptions options_;
  const Clock& clock_;
  const UniqueFd epoll_, stop_, nudge_;
  Acceptor acceptor_;
  PeerGroups groups_;
  Room unproven_;
  Room sessions_;
  std::map<int, Stranger> strangers_;  // by descriptor
  // Since the log has said it last.
  uint64_t crowded_out_ = 0, silent_ = 0, unproven_count_ = 0;
  absl::Time logged_ = absl::InfinitePast();
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_GATE_H_
