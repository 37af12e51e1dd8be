#include "agent/transport/slab_byte_server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn {

SlabByteServer::SlabByteServer(RoundBuffer buffer, const SaveImage& staged, const SaveImage& target)
    : of_save_(true), buffer_(std::move(buffer)) {
  for (const MovedOut& moved : target.moved_out) {
    shards_[moved.to_rank].push_back(
        {moved.shard, staged.slab_offset[moved.shard], target.layout->items[moved.shard].bytes()});
  }
}

absl::StatusOr<RoundBuffer> SlabByteServer::AnswerFor(uint32_t consumer, uint32_t round) const {
  if (!error_.ok()) return error_;
  if (round != 0) return MakeError(Reason::kBadRequest, absl::StrCat("round ", round, " of memory, which has one"));
  RoundBuffer buffer = buffer_;
  if (of_save_) {
    const auto found = shards_.find(consumer);
    if (found == shards_.end()) {
      return MakeError(Reason::kBadRequest, absl::StrCat("rank ", consumer, " writes no shard of this rank"));
    }
    buffer.shards = found->second;
  }
  return buffer;
}

void SlabByteServer::MarkStaged(uint64_t descriptor_id) {
  {
    MutexLock lock(mutex_);
    buffer_.descriptor_id = descriptor_id;
    staged_ = true;
  }
  AnswerAll();
}

void SlabByteServer::Stop(const absl::Status& why) {
  RoundBuffer lent;  // let go of without the lock
  {
    MutexLock lock(mutex_);
    if (error_.ok()) error_ = why;
    lent = std::exchange(buffer_, RoundBuffer());
  }
  AnswerAll();
}

void SlabByteServer::AnswerAll() {
  std::vector<std::pair<Done, absl::StatusOr<RoundBuffer>>> answers;
  {
    MutexLock lock(mutex_);
    for (auto& [call, waiting] : waiting_) {
      answers.emplace_back(std::move(waiting.done), AnswerFor(waiting.consumer, waiting.round));
    }
    waiting_.clear();
  }
  for (auto& [done, answer] : answers) done(std::move(answer));
}

uint64_t SlabByteServer::Await(uint32_t consumer, uint32_t round, uint32_t, Done done) {
  absl::StatusOr<RoundBuffer> answer = RoundBuffer();
  {
    MutexLock lock(mutex_);
    answer = AnswerFor(consumer, round);
    if (!staged_ && answer.ok()) {
      const uint64_t call = next_call_++;
      waiting_.emplace(call, Waiting{consumer, round, std::move(done)});
      return call;
    }
  }
  done(std::move(answer));
  return 0;
}

void SlabByteServer::Forget(uint64_t call) {
  MutexLock lock(mutex_);
  waiting_.erase(call);
}

ByteServer::Progress SlabByteServer::progress() {
  MutexLock lock(mutex_);
  Progress progress;
  progress.io_path = v1::IO_PATH_MEMORY;
  progress.all_read = staged_;
  return progress;
}

}  // namespace cairn
