// Lends memory that a trainer has staged. The slab of a save is lent to the ranks that write its shards for it, and the
// source of a reshard to the ranks that take shards from it.
#ifndef CAIRN_AGENT_TRANSPORT_SLAB_BYTE_SERVER_H_
#define CAIRN_AGENT_TRANSPORT_SLAB_BYTE_SERVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "agent/reader/round_byte_server.h"
#include "agent/session/save_image.h"
#include "common/base/mutex.h"

namespace cairn {

// To its consumers the memory is round 0, and there is no other. Thread-safe.
class SlabByteServer final : public ByteServer {
 public:
  // The buffer's descriptor id comes when it is lent.
  explicit SlabByteServer(RoundBuffer buffer) : buffer_(std::move(buffer)) {}
  // Serves a save: `target` says what moves to whom, and `staged` where it lies. Each consumer is told its own shards,
  // and one that has none gets nothing.
  SlabByteServer(RoundBuffer buffer, const SaveImage& staged, const SaveImage& target);

  // Says that the trainer has copied everything, and that other processes may have it under this id. Those who wait are
  // answered.
  void MarkStaged(uint64_t descriptor_id);

  uint64_t Await(uint32_t consumer, uint32_t round, uint32_t released_below, Done done) override;
  void Forget(uint64_t call) override;
  void Release(uint32_t, uint32_t) override {}
  // Lets go of the memory too: consumers that have ended may keep this object for a while.
  void Stop(const absl::Status& why) override;
  // Everything counts as read once it is staged. Nothing of it comes from storage.
  Progress progress() override;

 private:
  struct Waiting {
    uint32_t consumer = 0;
    uint32_t round = 0;
    Done done;
  };
  absl::StatusOr<RoundBuffer> AnswerFor(uint32_t consumer, uint32_t round) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerAll();

  bool of_save_ = false;
  std::map<uint32_t, std::vector<LentShard>> shards_;  // by consumer
  Mutex mutex_;
  RoundBuffer buffer_ ABSL_GUARDED_BY(mutex_);
  bool staged_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_call_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_SLAB_BYTE_SERVER_H_
