#include "corpus/io/object_source.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/resources/aligned_buffer.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::corpus {
namespace {

constexpr uint64_t kPartBytes = uint64_t{8} << 20;
constexpr uint64_t kLeastPartBytes = uint64_t{1} << 20;
// Some readers want no more than the begin of a file, or the rest of a line behind the soft end.
constexpr uint64_t kSmallPartBytes = 256 << 10;
// Most lines end so soon behind the soft end.
constexpr uint64_t kRestOfLine = 64 << 10;

class ObjectSource final : public ByteSource {
 public:
  ObjectSource(std::string name, std::unique_ptr<ObjectReader> reader, uint64_t begin, uint64_t soft_end,
               const SourceOptions& options)
      : name_(std::move(name)),
        reader_(std::move(reader)),
        soft_end_(std::min(std::min(soft_end, reader_->bytes()) + kRestOfLine, reader_->bytes())),
        stop_(options.stop),
        file_bytes_(options.file_bytes),
        part_bytes_(std::clamp<uint64_t>(options.read_ahead / 4, kLeastPartBytes, kPartBytes)),
        // One part is being used.
        most_ahead_(std::max<uint64_t>(options.read_ahead / part_bytes_, 2) - 1),
        offset_(std::min(begin, reader_->bytes())) {}

  ~ObjectSource() override {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    if (stop_ != nullptr && stop_->load(std::memory_order_relaxed)) {
      return MakeError(Reason::kInterrupted, "interrupted");
    }
    if (used_ == part_.size) CAIRN_RETURN_IF_ERROR(TakeNext());
    const size_t count = std::min(size, part_.size - used_);
    if (count > 0) std::memcpy(buffer, part_.bytes.data() + used_, count);
    used_ += count;
    if (file_bytes_ != nullptr) *file_bytes_ += count;
    return count;
  }
  // Nothing of it comes into the page cache.
  bool direct() const override { return true; }

 private:
  enum class State { kPlanned, kUnderWay, kDone };
  struct Part {
    uint64_t offset = 0;
    size_t size = 0;
    State state = State::kPlanned;
    absl::Status status;
    AlignedBuffer bytes;
  };

  // Makes the next part the one that is read; an empty one at the end.
  absl::Status TakeNext() {
    used_ = 0;
    mutex_.Lock();
    if (part_.bytes.size() >= part_bytes_) spare_.push_back(std::move(part_.bytes));
    part_ = Part();
    PlanAhead();
    if (ahead_.empty()) {
      mutex_.Unlock();
      return absl::OkStatus();
    }
    StartThreads();
    changed_.NotifyAll();
    Part& next = ahead_.front();
    if (next.state == State::kPlanned) Fetch(next);
    while (next.state != State::kDone) changed_.Wait(mutex_);
    part_ = std::move(next);
    ahead_.pop_front();
    mutex_.Unlock();
    absl::Status status = std::move(part_.status);
    if (!status.ok()) part_ = Part();
    return status;
  }

  void PlanAhead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto plan = [this](uint64_t bytes, uint64_t end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      Part& part = ahead_.emplace_back();
      part.offset = offset_;
      part.size = static_cast<size_t>(std::min(bytes, end - offset_));
      offset_ += part.size;
    };
    if (!std::exchange(begun_, true) && offset_ < soft_end_) {
      const bool little = soft_end_ - offset_ <= kLeastPartBytes;  // of which one request is cheaper than two
      return plan(little ? kLeastPartBytes : kSmallPartBytes, soft_end_);
    }
    while (ahead_.size() < most_ahead_ && offset_ < soft_end_) plan(part_bytes_, soft_end_);
    if (!ahead_.empty() || offset_ == reader_->bytes()) return;
    plan(rest_bytes_, reader_->bytes());
    rest_bytes_ = std::min(2 * rest_bytes_, part_bytes_);
  }

  // The caller reads too, so one thread fewer than parts is enough. If the system refuses threads, the caller reads
  // all.
  void StartThreads() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (threads_.size() + 1 < ahead_.size()) {
      absl::StatusOr<std::thread> thread = StartThread("to read ahead", [this] { Loop(); });
      if (!thread.ok()) return;
      threads_.push_back(*std::move(thread));
    }
  }

  void Loop() {
    mutex_.Lock();
    while (!stopping_) {
      const auto planned =
          std::find_if(ahead_.begin(), ahead_.end(), [](const Part& part) { return part.state == State::kPlanned; });
      if (planned == ahead_.end()) {
        changed_.Wait(mutex_);
      } else {
        Fetch(*planned);
      }
    }
    mutex_.Unlock();
  }

  // Reads a part without the lock. Parts keep their addresses while others come and go at both ends.
  void Fetch(Part& part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    part.state = State::kUnderWay;
    if (part.size > kSmallPartBytes && !spare_.empty()) {
      part.bytes = std::move(spare_.back());
      spare_.pop_back();
    }
    mutex_.Unlock();
    absl::Status status = WithMemory(absl::StrCat("to read ", name_), [&] {
      if (part.bytes.size() < part.size) {
        part.bytes = AlignedBuffer(part.size > kSmallPartBytes ? part_bytes_ : kSmallPartBytes);
      }
      return reader_->Read(part.offset, part.size, part.bytes.data());
    });
    mutex_.Lock();
    part.status = std::move(status);
    part.state = State::kDone;
    changed_.NotifyAll();
  }

  const std::string name_;
  const std::unique_ptr<ObjectReader> reader_;
  const uint64_t soft_end_;
  const std::atomic<bool>* const stop_;
  std::atomic<uint64_t>* const file_bytes_;
  const uint64_t part_bytes_;
  const uint64_t most_ahead_;
  // The part that is being used, and how much of it was.
  Part part_;
  size_t used_ = 0;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Part> ahead_ ABSL_GUARDED_BY(mutex_);  // the next parts, in order
  std::vector<AlignedBuffer> spare_ ABSL_GUARDED_BY(mutex_);
  uint64_t offset_ ABSL_GUARDED_BY(mutex_);  // of the next part that is planned
  uint64_t rest_bytes_ ABSL_GUARDED_BY(mutex_) = kSmallPartBytes;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // only the caller uses it
};

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> OpenObjectSource(ObjectStores& stores, const std::string& name,
                                                             uint64_t begin, uint64_t soft_end,
                                                             const SourceOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(auto reader, stores.Open(name));
  return std::make_unique<ObjectSource>(name, std::move(reader), begin, soft_end, options);
}

}  // namespace cairn::corpus
