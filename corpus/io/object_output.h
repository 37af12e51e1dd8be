// Writes an object of unknown length: bytes are appended, and sent in parts by several threads while the caller
// computes. The object gets its name when it is complete (output_file.h).
#ifndef CAIRN_CORPUS_IO_OBJECT_OUTPUT_H_
#define CAIRN_CORPUS_IO_OBJECT_OUTPUT_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/resources/aligned_buffer.h"
#include "corpus/io/object_stores.h"

namespace cairn::corpus {

// Only one thread may use it. Memory: `parts` + 1 parts, which have 8 MiB at first and more when the object is large;
// none after Finish. The destructor removes what was sent, unless the object has its name.
class ObjectOutput {
 public:
  // Finds out whether the object may be written. Up to `parts` parts (>= 1) are sent at the same time. Fails as
  // ObjectStores::Create.
  static absl::StatusOr<std::unique_ptr<ObjectOutput>> Create(ObjectStores& stores, const std::string& name, int parts);
  ~ObjectOutput();
  ObjectOutput(const ObjectOutput&) = delete;
  ObjectOutput& operator=(const ObjectOutput&) = delete;

  // The next call reports errors of earlier parts. BAD_REQUEST: the store takes no object of this size. MEMORY_LIMIT.
  absl::Status Append(std::string_view bytes);
  // Sends the rest, and returns when the store has all parts. Nothing can be appended any more.
  absl::Status Finish();
  // Calls Finish if that was not done, and gives the object its name. It replaces an object of this name.
  absl::Status Publish();

  uint64_t bytes() const { return bytes_; }

 private:
  struct Part {
    int number = 0;
    AlignedBuffer bytes;
    size_t size = 0;
  };

  ObjectOutput(std::string name, std::unique_ptr<ObjectWriter> writer, int parts)
      : name_(std::move(name)), most_parts_(parts), writer_(std::move(writer)) {}
  absl::Status TakeBuffer();
  absl::Status Submit();
  void Loop();
  // Sends a part without the lock.
  void Send(Part part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndThreads();

  const std::string name_;
  const int most_parts_;
  const std::unique_ptr<ObjectWriter> writer_;
  bool finished_ = false;
  bool published_ = false;
  uint64_t bytes_ = 0;
  Part current_;           // is being filled; without a buffer, there is none yet
  size_t part_bytes_ = 0;  // of the current part

  Mutex mutex_;
  CondVar changed_;
  std::deque<Part> queue_ ABSL_GUARDED_BY(mutex_);
  std::vector<AlignedBuffer> spare_ ABSL_GUARDED_BY(mutex_);
  int under_way_ ABSL_GUARDED_BY(mutex_) = 0;  // parts in the queue, and those that are being sent
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // only the caller uses it
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_OBJECT_OUTPUT_H_
