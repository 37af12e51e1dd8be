// A large file of a PosixStorage while it is written. Its name ends in ".partial" instead of ".safetensors" until all
// of it is durable.
#ifndef CAIRN_STORE_POSIX_POSIX_FILE_WRITER_H_
#define CAIRN_STORE_POSIX_POSIX_FILE_WRITER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file/confined_directory.h"
#include "common/file/unique_fd.h"
#include "store/posix/posix_calls.h"
#include "store/storage/file_writer.h"

namespace cairn {

// Returns whether a file has such a name: "rank00003-bin01.partial".
bool IsPartialName(std::string_view name);

class PosixFileWriter : public FileWriter {
 public:
  // Begins to write `path` below `root`, as Storage::Create does. `root` and `calls` must outlive the writer.
  static absl::StatusOr<std::unique_ptr<PosixFileWriter>> Create(ConfinedDirectory& root, std::string_view path,
                                                                 uint64_t header_bytes, uint64_t data_bytes,
                                                                 const PosixCalls& calls);

  absl::Status Write(uint64_t offset, const char* bytes, uint64_t size) override;
  absl::Status Finish(std::string_view header) override;
  absl::Status Remove() override;
  bool buffered() const override { return buffered_; }

 private:
  PosixFileWriter(ConfinedDirectory& root, std::string_view path, uint64_t bytes, const PosixCalls& calls);

  // Takes the room for `bytes`, and finds out how the file may be written before several threads write.
  absl::Status Prepare(uint64_t bytes);
  absl::Status Failed(int error, std::string_view operation, const std::string& what) const;

  ConfinedDirectory& root_;
  const PosixCalls& calls_;
  const std::string final_path_;
  const std::string partial_path_;
  const uint64_t bytes_;
  UniqueFd fd_;
  // True: this object has made the files of these names.
  bool made_partial_ = false;
  bool made_final_ = false;
  std::atomic<bool> buffered_ = false;
};

}  // namespace cairn

#endif  // CAIRN_STORE_POSIX_POSIX_FILE_WRITER_H_
