// The parts of an object of an S3Storage, from which the store makes it.
#ifndef CAIRN_STORE_S3_S3_UPLOAD_H_
#define CAIRN_STORE_S3_S3_UPLOAD_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/base/random_id.h"
#include "common/file/put_result.h"
#include "store/s3/s3_client.h"
#include "store/storage/upload.h"

namespace cairn {

class S3Upload : public Upload {
 public:
  // A part has this many bytes, or more where 10,000 parts of it are too few.
  static constexpr uint64_t kPartBytes = uint64_t{8} << 20;

  // An upload to `key`. `path` is for messages. `client` must outlive it. It asks nothing of the store yet.
  S3Upload(S3Client& client, std::string key, std::string path)
      : client_(client), key_(std::move(key)), path_(std::move(path)), writer_(RandomToken(16)) {}

  void StopWhen(const std::atomic<bool>& stop) override { stop_ = &stop; }
  absl::Status Begin() override { return Id().status(); }
  // The first thousand parts have kPartBytes, each further thousand twice as much as the one before, up to 128 MiB. So
  // an object has up to 931 GB, and a small one takes little memory.
  uint64_t PartBytes(int number) const override;
  absl::Status Send(int number, std::string_view bytes) override;
  absl::Status Finish() override;
  absl::Status Abort() override { return AbortUnless(nullptr); }
  // The same, but it fails at once if the `stop` of StopWhen is true.
  absl::Status AbortUnlessStopped() { return AbortUnless(stop_); }

  // Makes the object of the parts, of which there is one at least. With `if_absent` it replaces none, and kExists says
  // that another stands there.
  absl::StatusOr<Put> Complete(bool if_absent);

 private:
  // Returns the store's name of the upload, which the first call begins.
  absl::StatusOr<std::string> Id();
  absl::Status AbortUnless(const std::atomic<bool>* stop);

  S3Client& client_;
  const std::string key_;
  const std::string path_;
  const std::string writer_;
  const std::atomic<bool>* stop_ = nullptr;
  Mutex id_mutex_;
  std::string id_ ABSL_GUARDED_BY(id_mutex_);  // empty: not begun
  Mutex mutex_;
  std::map<int, S3Part> parts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_UPLOAD_H_
