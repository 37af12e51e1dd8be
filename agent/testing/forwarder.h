// A way to a server that can be made to lose packets: connections through it stay open, but what is sent over those
// that were lost never arrives. It can also make the server look frozen.
#ifndef CAIRN_AGENT_TESTING_FORWARDER_H_
#define CAIRN_AGENT_TESTING_FORWARDER_H_

#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "common/file/unique_fd.h"

namespace cairn::testing {

// Listens on a free port of loopback and forwards to a server there. Thread-safe.
class Forwarder {
 public:
  // `target` is "127.0.0.1:port".
  explicit Forwarder(const std::string& target);
  Forwarder(const Forwarder&) = delete;
  Forwarder& operator=(const Forwarder&) = delete;
  ~Forwarder();

  const std::string& address() const { return address_; }
  // From now on nothing is carried over the connections that stand, and none of them ends. New ones work.
  void LosePackets();
  // From now on the server is as one that is stopped: connections to it are made, but nothing is carried.
  void Freeze();
  // Carries again over the connections that were there before Freeze. Those that came since wait for Admit.
  void Thaw();
  void Admit();
  // Waits until so many connections wait for Admit and have sent their first bytes. Fails the test after ten seconds.
  void AwaitHeld(size_t count);
  // Waits until so many connections have been ended by the client or the server. Fails the test after ten seconds.
  void AwaitEnded(size_t count);

 private:
  struct Connection {
    UniqueFd client;
    UniqueFd server;
    bool lost = false;
  };
  void Loop();
  void Wake() const;
  UniqueFd Connect() const;
  void AwaitCount(const size_t& counted, size_t count, const char* what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  int target_port_ = 0;
  std::string address_;
  UniqueFd listener_;
  UniqueFd wake_;
  Mutex mutex_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool lose_ ABSL_GUARDED_BY(mutex_) = false;
  bool carries_ ABSL_GUARDED_BY(mutex_) = true;
  bool admits_ ABSL_GUARDED_BY(mutex_) = true;
  CondVar changed_;
  size_t held_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t ended_ ABSL_GUARDED_BY(mutex_) = 0;
  // These belong to the thread.
  std::vector<Connection> connections_;
  std::vector<UniqueFd> silent_;  // not admitted, without a byte so far
  std::vector<UniqueFd> spoken_;  // not admitted
  std::thread thread_;
};

}  // namespace cairn::testing

#endif  // CAIRN_AGENT_TESTING_FORWARDER_H_
