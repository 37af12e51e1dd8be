#include "foreign/write/export_writer.h"

#include <utility>

#include "common/status/reason.h"
#include "common/status/status.h"
#include "foreign/tensors/window_size.h"
#include "foreign/write/output_directory.h"
#include "foreign/write/output_prefix.h"
#include "store/open/open_storage.h"
#include "store/open/place.h"

namespace cairn {
namespace {

absl::StatusOr<std::unique_ptr<ExportOutput>> OutputAt(const std::string& name, const std::string& identity) {
  if (IsDirectoryRoot(name)) return std::make_unique<OutputDirectory>(name, identity);
  CAIRN_ASSIGN_OR_RETURN(const std::string address, FullNameOf(name));
  CAIRN_ASSIGN_OR_RETURN(Place place, FindPlace(address));
  return std::make_unique<OutputPrefix>(std::move(place.storage), std::move(place.path));
}

}  // namespace

ExportWriter::ExportWriter(Storage& storage, const Manifest& manifest, std::span<const WholeTensor> tensors,
                           const std::string& directory, const WriteExportOptions& options)
    : options_(options),
      directory_(directory),
      reader_(&storage, manifest, {.threads = options.threads, .interrupted = options.interrupted}),
      fingerprints_(manifest, tensors) {}

absl::StatusOr<size_t> ExportWriter::Run(const std::function<bool(std::string_view name)>& is_output,
                                         const std::function<absl::Status()>& write) {
  CAIRN_ASSIGN_OR_RETURN(output_, OutputAt(directory_, options_.identity));
  CAIRN_RETURN_IF_ERROR(
      output_->Open([&](std::string_view name) { return name == kFingerprintsName || is_output(name); }));
  const absl::Status written = [&] {
    CAIRN_RETURN_IF_ERROR(write());
    if (options_.interrupted && options_.interrupted()) return MakeError(Reason::kInterrupted, "interrupted");
    return output_->Publish();
  }();
  if (!written.ok()) return output_->Abandon(written);
  return finished_before_;
}

absl::Status ExportWriter::Allocate(uint64_t largest_part, uint64_t most_bytes) {
  const uint64_t step = output_->step();
  return stream_.Allocate(WindowBytes({.memory_bytes = options_.memory_bytes,
                                       .reader_bytes = reader_.buffer_bytes() + 2 * step,
                                       .largest_part = largest_part,
                                       .most_bytes = most_bytes}),
                          step);
}

absl::Status ExportWriter::WriteFile(const std::string& name, uint64_t bytes, uint64_t tensor_bytes,
                                     const std::function<absl::Status()>& fill) {
  CAIRN_ASSIGN_OR_RETURN(const bool taken, output_->TakeFinished(name, bytes, options_.interrupted));
  if (taken) {
    ++finished_before_;
    AddDone(tensor_bytes);
    return absl::OkStatus();
  }
  CAIRN_ASSIGN_OR_RETURN(const auto file, output_->Begin(name, bytes));
  stream_.Begin(*file);
  absl::Status filled = fill();
  if (filled.ok()) filled = stream_.End();
  if (!filled.ok()) {
    stream_.Wait().IgnoreError();  // it may be writing the file, which goes now
    return filled;
  }
  return file->Finish(stream_.crc32c());
}

absl::Status ExportWriter::ReadTensors(std::span<const TensorPart> parts) {
  CAIRN_RETURN_IF_ERROR(reader_.Read(parts, stream_.data()));
  CAIRN_RETURN_IF_ERROR(fingerprints_.Add(parts, stream_.data(), options_.threads));
  uint64_t bytes = 0;
  for (const TensorPart& part : parts) {
    bytes += static_cast<uint64_t>((part.end - part.begin) * BytesOf(part.tensor->plain.dtype));
  }
  AddDone(bytes);
  return absl::OkStatus();
}

absl::Status ExportWriter::AddFingerprints(std::span<const std::pair<std::string, uint32_t>> second_names) {
  // All files have ended, so the window is free.
  for (const TensorPart& part : fingerprints_.Missing(stream_.window_bytes())) {
    CAIRN_RETURN_IF_ERROR(reader_.Read({&part, 1}, stream_.data()));
    CAIRN_RETURN_IF_ERROR(fingerprints_.Add({&part, 1}, stream_.data(), options_.threads));
  }
  return output_->Add(kFingerprintsName, fingerprints_.Text(second_names));
}

void ExportWriter::AddDone(uint64_t bytes) {
  done_ += bytes;
  if (options_.progress) options_.progress(done_);
}

}  // namespace cairn
