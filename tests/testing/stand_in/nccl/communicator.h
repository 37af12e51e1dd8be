// One rank's end of a communicator of the stand-in.
#ifndef CAIRN_TESTS_TESTING_STAND_IN_NCCL_COMMUNICATOR_H_
#define CAIRN_TESTS_TESTING_STAND_IN_NCCL_COMMUNICATOR_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/driver/nccl_api.h"
#include "tests/testing/stand_in/nccl/rendezvous.h"

namespace cairn::stand_in {

// One send or receive with one peer.
struct Operation {
  bool send = false;
  int peer = 0;
  char* bytes = nullptr;
  size_t count = 0;  // that are left
  // Says whether they go by letter; both ends begin with the same.
  bool by_letter = false;
  size_t taken = 0;                    // of the letter
  std::shared_ptr<const char> mapped;  // by the receiver of a letter
};

// Thread-safe.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(int ranks, int rank) : ranks_(ranks), rank_(rank) {}

  // Joins in a thread of its own.
  void Join(const nccl::UniqueId& id, const Hello& hello);
  nccl::Result AsyncError();
  // Returns whether groups may be begun.
  bool ready();
  void Fail(nccl::Result result, const std::string& error);
  std::string last_error();
  // After a group was enqueued: the next question about errors answers "in progress", as a library that does not block
  // may do.
  void MarkEnqueued();
  // Moves the bytes of a group's operations; with one peer they are moved in their order. Returns when all have been
  // moved or after Abort, and if a peer is lost only after Abort, as a kernel does.
  void Move(std::vector<Operation> operations);
  // Ends only by Abort.
  void Stall();
  void Abort();

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }

 private:
  bool RootLost();
  // Moves some bytes of an operation; false if none could be.
  bool MoveSome(Segment& segment, Operation& operation);

  const int ranks_;
  const int rank_;
  std::atomic<bool> aborted_ = false;
  std::mutex mutex_;
  nccl::Result state_ = nccl::kInProgress;
  std::string error_;
  bool enqueued_ = false;
  int connection_ = -1;
  std::shared_ptr<Segment> segment_;
  PeerMemory peer_memory_;
};

}  // namespace cairn::stand_in

#endif  // CAIRN_TESTS_TESTING_STAND_IN_NCCL_COMMUNICATOR_H_
