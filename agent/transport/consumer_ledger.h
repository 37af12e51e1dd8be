// Keeps the books of a load's consumer: what it has asked for, what it holds, and what it has handed to its trainer.
// The ledger decides which round to ask of which source next, what a source may reuse, which batches are ready, and how
// much memory their windows may take. It holds no bytes.
#ifndef CAIRN_AGENT_TRANSPORT_CONSUMER_LEDGER_H_
#define CAIRN_AGENT_TRANSPORT_CONSUMER_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "cairn/v1/local_agent_service.pb.h"
#include "cairn/v1/plan.pb.h"

namespace cairn {

// A source is a rank that bytes come from; sources are numbered from 0. Each is asked for one round at a time, in
// ascending order. A round that came is held until its bytes are no longer needed at the source: until the trainer
// has released the batch that lies in the source's own buffer, or until the last window of the round is filled here.
// Not thread-safe.
class ConsumerLedger {
 public:
  // The windows that are out at once have at most `window_bytes` together, but one is always allowed.
  ConsumerLedger(const v1::ReadPlan& plan, uint64_t window_bytes);

  size_t sources() const { return sources_.size(); }
  uint32_t rank(size_t source) const { return sources_[source].rank; }
  size_t rounds(size_t source) const { return sources_[source].rounds.size(); }

  // Returns the round to ask of `source` now, or nothing if all its rounds came.
  std::optional<uint32_t> NextRound(size_t source) const;
  // The source may reuse its buffers of all rounds below the returned one, which never falls.
  uint32_t ReleasedBelow(size_t source) const;

  // Says that the round stands at its source; it is held from now on. Returns its copies, which the ledger gives away,
  // or nothing if it is not the round that NextRound names.
  std::optional<std::vector<v1::Copy>> TakeRound(size_t source, uint32_t round);

  // Makes a round that came into one batch, which lies in its source's buffer. Returns the number that it gives the
  // batch.
  uint64_t AddMapped(size_t source, uint32_t round, v1::LoadBatch batch);

  // Makes a round that came into one batch of pieces, which the trainer reads itself. It stays to come until the
  // trainer has read it right. Until then the ledger keeps the round's copies.
  void AddLent(size_t source, uint32_t round, v1::LoadBatch batch, std::vector<v1::Copy> copies);
  // Takes what the trainer says of a batch of pieces. Returns where it came from; nothing if the number is not that of
  // such a batch, or if the trainer has said it before.
  struct Place {
    size_t source = 0;
    uint32_t round = 0;
  };
  std::optional<Place> TakeRead(uint64_t batch);
  // Says that the batch was read right: it is released, and the source is to be told ReleasedBelow.
  void AcceptRead(uint64_t batch);
  // Says that it was not: there is no such batch, and the round is to be asked for once more. Returns its copies.
  std::vector<v1::Copy> RefuseRead(uint64_t batch);
  // Returns how many batches of pieces are not known to be right.
  size_t unread() const { return unread_; }

  // Returns the size of the largest window that a round is cut into, so that one is filled while another is copied.
  uint64_t largest_window() const;
  // Makes a round that came into `windows` (> 0) batches, each of which lies in a window of this agent.
  void ExpectWindows(size_t source, uint32_t round, size_t windows);
  // Returns whether a window of `bytes` may be taken now.
  bool HasRoom(uint64_t bytes) const { return windows_out_ == 0 || windows_out_ + bytes <= window_bytes_; }
  void TakeRoom(uint64_t bytes) { windows_out_ += bytes; }

  struct Filled {
    uint64_t batch = 0;  // its number
    // It was the last window of its round: the source is to be told ReleasedBelow.
    bool round_released = false;
  };
  // Says that a window is filled. Its room was taken, and is given back when the batch is released.
  Filled AddFilled(size_t source, uint32_t round, uint64_t window_bytes, v1::LoadBatch batch);

  struct Received {
    std::vector<v1::LoadBatch> batches;
    bool complete = false;  // no more will come
  };
  // Returns what the trainer gets now, or nothing if it has to wait.
  std::optional<Received> TakeReady();
  // Says that the trainer did not get what TakeReady returned last: these batches are ready again, before all others.
  void PutBack(std::vector<v1::LoadBatch> batches);

  // Says that the trainer has copied the batch. Returns the source that is to be told ReleasedBelow, if the batch lay
  // in that source's buffer. A number that is not out is ignored.
  std::optional<size_t> Release(uint64_t batch);
  // Says that the trainer copies no more, so that nothing is ready. Returns the batches that are to be released.
  std::vector<uint64_t> DropReady();

 private:
  struct Source {
    uint32_t rank = 0;
    std::vector<uint32_t> rounds;                      // those that have something for this rank, ascending
    std::map<uint32_t, std::vector<v1::Copy>> copies;  // those of rounds that have not come, by round
    size_t next = 0;                                   // rounds[next] is the first that has not come
    std::set<uint32_t> held;                           // rounds that came and are not released
    std::map<uint32_t, size_t> unfilled;               // how many windows are still to be filled, by round
  };
  struct Batch {
    size_t source = 0;
    uint32_t round = 0;
    bool mapped = false;  // it lies in the source's buffer
    uint64_t window_bytes = 0;
    bool lent = false;  // the trainer reads its pieces; it is not counted as come
    bool read = false;  // the trainer has said what it read
    std::vector<v1::Copy> copies = {};
  };

  uint64_t AddReady(Batch where, v1::LoadBatch batch);

  const uint64_t window_bytes_;
  std::vector<Source> sources_;
  size_t to_come_ = 0;               // batches that are not ready yet
  std::deque<v1::LoadBatch> ready_;  // not given to the trainer yet
  std::map<uint64_t, Batch> out_;    // those that are ready, or given and not released, by number
  uint64_t next_batch_ = 1;
  uint64_t windows_out_ = 0;  // bytes
  size_t unread_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_CONSUMER_LEDGER_H_
