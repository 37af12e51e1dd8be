// The part of an export that is the same for all forms of files.
#ifndef CAIRN_FOREIGN_WRITE_EXPORT_WRITER_H_
#define CAIRN_FOREIGN_WRITE_EXPORT_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "foreign/tensors/tensor_reader.h"
#include "foreign/tensors/whole_tensors.h"
#include "foreign/write/export_fingerprints.h"
#include "foreign/write/export_output.h"
#include "foreign/write/window_stream.h"
#include "store/storage/storage.h"

namespace cairn {

struct WriteExportOptions {
  // See export_identity.h.
  std::string identity;
  // Bounds the memory for bytes under way, whatever the size of the model; at least 64 MiB.
  uint64_t memory_bytes = uint64_t{1} << 30;
  int threads = 2;
  // Called now and then, from any thread, with the bytes of tensors that are written so far.
  std::function<void(uint64_t)> progress;
  // Called often; if it returns true the export ends.
  std::function<bool()> interrupted;
};

// Opens a directory, or a prefix of an object store, for one export and writes files into it, one after the other. Not
// thread-safe.
class ExportWriter {
 public:
  // `tensors` are those of the plan. All of them must outlive it.
  ExportWriter(Storage& storage, const Manifest& manifest, std::span<const WholeTensor> tensors,
               const std::string& directory, const WriteExportOptions& options);

  // Opens the directory (ExportOutput::Open), calls `write`, which writes all files, and gives the files their
  // names. Returns how many files an earlier export had finished. After an error, finished files may stay: see
  // ExportOutput::Abandon. Fails as FullNameOf does for an address. CANCELLED (INTERRUPTED).
  absl::StatusOr<size_t> Run(const std::function<bool(std::string_view name)>& is_output,
                             const std::function<absl::Status()>& write);

  // The methods below are for `write`. Allocate must be called first; its arguments are those of WindowSizes.
  absl::Status Allocate(uint64_t largest_part, uint64_t most_bytes);
  // Writes a file of `bytes` bytes: `fill` gives all of them to stream(). If an earlier export has finished the file,
  // it only checks the file, and counts `tensor_bytes` as written.
  absl::Status WriteFile(const std::string& name, uint64_t bytes, uint64_t tensor_bytes,
                         const std::function<absl::Status()>& fill);
  // Reads parts of the tensors into the stream's window, as TensorReader::Read, and counts their bytes as written.
  absl::Status ReadTensors(std::span<const TensorPart> parts);
  // Makes the file of fingerprints, after the files of tensors. It reads again what an earlier export has written, if
  // it needs to. `second_names`: see ExportFingerprints::Text.
  absl::Status AddFingerprints(std::span<const std::pair<std::string, uint32_t>> second_names = {});

  WindowStream& stream() { return stream_; }
  // Returns the directory, for small files.
  ExportOutput& output() { return *output_; }

 private:
  void AddDone(uint64_t bytes);

  const WriteExportOptions& options_;
  const std::string directory_;
  std::unique_ptr<ExportOutput> output_;
  TensorReader reader_;
  WindowStream stream_;
  ExportFingerprints fingerprints_;
  uint64_t done_ = 0;
  size_t finished_before_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_EXPORT_WRITER_H_
