// A way to a server that can be made to lose packets: connections through it stay open, but what is sent over those
// that were lost never arrives.
#ifndef CAIRN_AGENT_TESTING_FORWARDER_H_
#define CAIRN_AGENT_TESTING_FORWARDER_H_

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

 private:
  struct Connection {
    UniqueFd client;
    UniqueFd server;
    bool lost = false;
  };
  void Loop();
  UniqueFd Connect() const;

  int target_port_ = 0;
  std::string address_;
  UniqueFd listener_;
  UniqueFd wake_;
  Mutex mutex_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool lose_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Connection> connections_;  // of the thread
  std::thread thread_;
};

}  // namespace cairn::testing

#endif  // CAIRN_AGENT_TESTING_FORWARDER_H_
