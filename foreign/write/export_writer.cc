#include "foreign/write/export_writer.h"

#include "common/status/reason.h"
#include "common/status/status.h"
#include "foreign/tensors/window_size.h"

namespace cairn {

ExportWriter::ExportWriter(Storage& storage, const Manifest& manifest, const std::string& directory,
                           const WriteExportOptions& options)
    : options_(options),
      output_(directory, options.identity),
      reader_(&storage, manifest, {.threads = options.threads, .interrupted = options.interrupted}) {}

absl::StatusOr<size_t> ExportWriter::Run(const std::function<bool(std::string_view name)>& is_output,
                                         const std::function<absl::Status()>& write) {
  CAIRN_RETURN_IF_ERROR(output_.Open(is_output));
  const absl::Status written = [&] {
    CAIRN_RETURN_IF_ERROR(write());
    if (options_.interrupted && options_.interrupted()) return MakeError(Reason::kInterrupted, "interrupted");
    return output_.Publish();
  }();
  if (!written.ok()) return output_.Abandon(written);
  return finished_before_;
}

absl::Status ExportWriter::Allocate(uint64_t largest_part, uint64_t most_bytes) {
  return stream_.Allocate(WindowBytes({.memory_bytes = options_.memory_bytes,
                                       .reader_bytes = reader_.buffer_bytes(),
                                       .largest_part = largest_part,
                                       .most_bytes = most_bytes}));
}

absl::Status ExportWriter::WriteFile(const std::string& name, uint64_t bytes, uint64_t tensor_bytes,
                                     const std::function<absl::Status()>& fill) {
  CAIRN_ASSIGN_OR_RETURN(const bool taken, output_.TakeFinished(name, bytes, options_.interrupted));
  if (taken) {
    ++finished_before_;
    AddDone(tensor_bytes);
    return absl::OkStatus();
  }
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd fd, output_.Create(name, bytes));
  stream_.Begin(fd.get(), name, bytes);
  CAIRN_RETURN_IF_ERROR(fill());
  CAIRN_RETURN_IF_ERROR(stream_.End());
  return output_.Finish(fd.get(), name, stream_.crc32c());
}

void ExportWriter::AddDone(uint64_t bytes) {
  done_ += bytes;
  if (options_.progress) options_.progress(done_);
}

}  // namespace cairn
