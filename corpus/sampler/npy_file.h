// Writes an array as numpy.save does, piece by piece.
#ifndef CAIRN_CORPUS_SAMPLER_NPY_FILE_H_
#define CAIRN_CORPUS_SAMPLER_NPY_FILE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "corpus/io/output_file.h"

namespace cairn::corpus {

// What the header of an .npy file says. The values are little-endian and in C order.
struct NpyHeader {
  std::string descr;            // numpy's name of the dtype: "<i4", "<u4", "<i8", "<i2"
  std::vector<uint64_t> shape;  // one or two dimensions

  uint64_t data_bytes() const;
  // Returns the bytes before the data, as numpy 1.24 and later write them (format 1.0).
  std::string Encode() const;
};

// Returns whether a regular file stands at `path` with this header and the size that belongs to it. The values are not
// read.
bool HasNpyHeader(const std::string& path, const NpyHeader& header);

// Only one thread may use it at a time. The file gets its name by Publish; before that it is hidden, and the destructor
// removes it (output_file.h). It takes up to 3 MiB of memory.
class NpyFile {
 public:
  // `partial_path` is the hidden file, which no other run may use. NO_SPACE, STORAGE_READ_ONLY, STORAGE_ERROR,
  // BAD_REQUEST: as OutputFile::Create.
  static absl::StatusOr<NpyFile> Create(const std::string& path, const std::string& partial_path,
                                        const NpyHeader& header);

  // All pieces together must be as long as the header says. NO_SPACE, STORAGE_ERROR.
  template <typename T>
  absl::Status Append(std::span<const T> values) {
    return file_->Append({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  }
  // NO_SPACE, STORAGE_ERROR, FSYNC_FAILED. As those of OutputFile.
  absl::Status Finish() { return file_->Finish(); }
  absl::Status Publish() { return file_->Publish(); }

 private:
  explicit NpyFile(std::unique_ptr<OutputFile> file) : file_(std::move(file)) {}

  std::unique_ptr<OutputFile> file_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SAMPLER_NPY_FILE_H_
