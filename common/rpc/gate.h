// Accepts the connections of a gRPC server's port, and passes only those to the server that have proven themselves
// (peer_proof.h). All other connections are strangers. The memory and descriptors that strangers can take are bounded
// (stranger_table.h, stranger_session.h), whatever they send.
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
  // Returns whether a new connection is passed without a proof, before any byte is read from it. Null: none is.
  std::function<bool(int connection)> knows;
  // Returns the current keys by which peers prove themselves; null if there are none yet. Unset: there are no proofs
  // here.
  std::function<std::shared_ptr<const PeerKeys>()> keys;
  // Passes connections that begin with HTTP/2 without a proof (--insecure).
  bool insecure = false;
  // The answers to strangers. The health board in it must outlive the gate.
  StrangerSession::Answers answers;
  // Receives each connection that is passed. The bytes behind its proof have not been read.
  std::function<void(int listener, UniqueFd connection)> passed;
};

class Gate {
 public:
  // How long a connection may take to prove itself.
  static constexpr absl::Duration kProofTime = absl::Seconds(5);
  // How long a stranger's connection that asks for the health may last. This also ends a Watch call, which the caller
  // repeats.
  static constexpr absl::Duration kSessionTime = absl::Minutes(1);
  // The maximum number of strangers that ask for the health at a time.
  static constexpr size_t kMostSessions = 32;

  // The clock must outlive the gate. RESOURCE_EXHAUSTED (MEMORY_LIMIT): the process has no descriptor left.
  static absl::StatusOr<std::unique_ptr<Gate>> Make(GateOptions options, const Clock& clock);

  // Serves these listeners, which must not block, until Stop. Then closes all strangers' connections.
  void Run(const std::vector<int>& listeners);
  // Nudge makes Run look again at the health and at the time. Stop ends Run. Both may be called from any thread.
  void Nudge();
  void Stop();

 private:
  // A connection that has not been passed. It is in one of the two rooms.
  struct Stranger {
    UniqueFd connection;
    int listener = -1;
    StrangerTable::Number number = 0;
    std::unique_ptr<ServerProof> proof;        // while it proves itself
    size_t wanted = 0;                         // bytes that the proof may read next
    std::unique_ptr<StrangerSession> session;  // if it speaks HTTP/2
    bool writing = false;                      // the stranger has to read before it may send more
  };
  // The strangers of one kind: those that have not proven themselves yet, or those with a session.
  struct Room {
    StrangerTable table;
    absl::flat_hash_map<StrangerTable::Number, int> connections;
  };
  enum class Turn { kStays, kGoes, kPasses };

  Gate(GateOptions options, const Clock& clock, UniqueFd epoll, UniqueFd stop, UniqueFd nudge);

  bool Watch(int descriptor, uint32_t events, int operation) const;
  void Welcome(int listener, UniqueFd connection);
  // Adds a stranger to a room. Returns false if there is no place.
  bool Enter(Room& room, Stranger& stranger);
  Room& RoomOf(const Stranger& stranger) { return stranger.session == nullptr ? unproven_ : sessions_; }

  void Serve(int connection, uint32_t events);
  Turn Continue(Stranger& stranger, uint32_t events);
  // Decides by the first bytes of a connection, without consuming them.
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
  // Counted since strangers_refused was logged last.
  uint64_t crowded_out_ = 0, silent_ = 0, unproven_count_ = 0;
  absl::Time logged_ = absl::InfinitePast();
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_GATE_H_
