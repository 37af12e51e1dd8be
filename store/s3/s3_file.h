// A file of an S3Storage that is open to be read.
#ifndef CAIRN_STORE_S3_S3_FILE_H_
#define CAIRN_STORE_S3_S3_FILE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "store/s3/s3_client.h"
#include "store/storage/stored_file.h"

namespace cairn {

// Each read is one ranged request, which holds no memory but the caller's. Only the first bytes are kept, which come
// with the request that opens the file: they often are its header. So all ways to read are one. An object that took the
// file's name since it was opened is noticed: DATA_LOSS (BAD_FOREIGN_FILE).
class S3File : public StoredFile {
 public:
  // Opens `key`, as Storage::Open does. `path` is for messages. `client` must outlive the file.
  static absl::StatusOr<std::unique_ptr<S3File>> Open(S3Client& client, std::string key, std::string path,
                                                      const OpenOptions& options);

  using StoredFile::Read;
  Way Begin(uint64_t, uint64_t) override { return Way::kDirect; }
  absl::Status Read(Way way, uint64_t offset, uint64_t size, char* to, bool in_place) override;

 private:
  S3File(Facts facts, const OpenOptions& options, S3Client& client, std::string key, std::string begin)
      : StoredFile(std::move(facts), options.cache),
        client_(client),
        key_(std::move(key)),
        begin_(std::move(begin)),
        counters_(options.counters),
        stop_(options.stop) {}

  S3Client& client_;
  const std::string key_;
  const std::string begin_;
  ReadCounters* const counters_;
  const std::atomic<bool>* const stop_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_FILE_H_
