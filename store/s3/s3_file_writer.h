// A large file of an S3Storage while it is written: an upload of many parts.
#ifndef CAIRN_STORE_S3_S3_FILE_WRITER_H_
#define CAIRN_STORE_S3_S3_FILE_WRITER_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "store/s3/s3_client.h"
#include "store/s3/s3_upload.h"
#include "store/storage/file_writer.h"

namespace cairn {

// The data is cut into parts of PartStep(data) bytes, which are sent from the caller's memory; the last one may be
// shorter. So every Write begins at a multiple of that, and has a multiple of it unless it is the file's end. Parts may
// come in any order, but a store wants 5 MiB in each part but the last, which a header does not have. So part 1 is the
// header with the first bytes of the data, which are kept until Finish: kHeldBytes, unless the file needs larger parts.
// A file that fits is put as one object. Of a file without a header nothing is kept, so any number of them may be open.
class S3FileWriter : public FileWriter {
 public:
  static constexpr uint64_t kHeldBytes = S3Upload::kPartBytes;

  // Returns the size of the parts of a file with so many bytes: 8 MiB, or what 10,000 parts make necessary.
  static uint64_t PartStep(uint64_t data_bytes);

  // Begins to write `key`. `path` is for messages. `client` must outlive the writer. It asks nothing of the store.
  S3FileWriter(S3Client& client, std::string key, std::string path, uint64_t header_bytes, uint64_t data_bytes)
      : client_(client),
        key_(std::move(key)),
        path_(std::move(path)),
        header_bytes_(header_bytes),
        data_bytes_(data_bytes),
        upload_(client, key_, path_) {}

  absl::Status Write(uint64_t offset, const char* bytes, uint64_t size) override;
  void StopWhen(const std::atomic<bool>& stop) override { upload_.StopWhen(stop); }
  absl::Status Finish(std::string_view header) override;
  absl::Status Remove() override;
  bool buffered() const override { return false; }

 private:
  bool HoldsFirst() const { return header_bytes_ > 0; }
  // Otherwise the file is put as one object.
  bool HasParts() const { return HoldsFirst() ? data_bytes_ > kHeldBytes : data_bytes_ > 0; }

  S3Client& client_;
  const std::string key_;
  const std::string path_;
  const uint64_t header_bytes_;
  const uint64_t data_bytes_;
  S3Upload upload_;    // not begun: all of the file is held so far
  bool made_ = false;  // this object has made the file of this name, or may have
  Mutex mutex_;
  std::string held_ ABSL_GUARDED_BY(mutex_);  // the first bytes of the data
};

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_FILE_WRITER_H_
