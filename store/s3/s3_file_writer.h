// A large file of an S3Storage while it is written: an upload of many parts.
#ifndef CAIRN_STORE_S3_S3_FILE_WRITER_H_
#define CAIRN_STORE_S3_S3_FILE_WRITER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/base/random_id.h"
#include "store/s3/s3_client.h"
#include "store/storage/file_writer.h"

namespace cairn {

// Each Write is one part of the upload, sent from the caller's memory; all but the one at the file's end must have
// PartStep(data) bytes or more. Parts may come in any order, but a store wants 5 MiB in each part but the last, which a
// header does not have. So the first part is the header with the first bytes of the data, which are kept until Finish:
// at most kHeldBytes, or twice that if less than a part would remain. A file that fits is put as one object.
class S3FileWriter : public FileWriter {
 public:
  static constexpr uint64_t kHeldBytes = uint64_t{8} << 20;

  // Returns how far the parts of a file with so many bytes begin from each other at least: 8 MiB, or what 10,000 parts
  // make necessary.
  static uint64_t PartStep(uint64_t data_bytes);

  // Begins to write `key`, as Storage::Create does. `path` is for messages. `client` must outlive the writer.
  // Begins to write `key`. `path` is for messages. `client` must outlive the writer. It asks nothing of the store.
  S3FileWriter(S3Client& client, std::string key, std::string path, uint64_t header_bytes, uint64_t data_bytes)
      : client_(client),
        key_(std::move(key)),
        path_(std::move(path)),
        header_bytes_(header_bytes),
        data_bytes_(data_bytes),
        writer_(RandomToken(16)) {}

  absl::Status Write(uint64_t offset, const char* bytes, uint64_t size) override;
  void StopWhen(const std::atomic<bool>& stop) override { stop_ = &stop; }
  absl::Status Finish(std::string_view header) override;
  absl::Status Remove() override;
  bool buffered() const override { return false; }

 private:
  // Returns the upload, which the first call begins.
  absl::StatusOr<std::string> Upload();
  absl::Status SendPart(int number, std::string_view bytes);

  S3Client& client_;
  const std::string key_;
  const std::string path_;
  const uint64_t header_bytes_;
  const uint64_t data_bytes_;
  const std::string writer_;
  const std::atomic<bool>* stop_ = nullptr;
  bool made_ = false;  // this object has made the file of this name, or may have
  Mutex upload_mutex_;
  std::string upload_ ABSL_GUARDED_BY(upload_mutex_);  // empty: all of the file is held so far
  Mutex mutex_;
  std::string held_ ABSL_GUARDED_BY(mutex_);  // the first bytes of the data
  std::map<int, S3Part> parts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_FILE_WRITER_H_
