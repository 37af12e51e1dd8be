#include "export/exporter.h"

#include <algorithm>
#include <vector>

#include "common/resources/aligned_buffer.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "export/output_directory.h"
#include "export/tensor_reader.h"
#include "export/window.h"

namespace cairn {
namespace {

class Exporter {
 public:
  Exporter(PosixStorage& storage, const Manifest& manifest, const ExportPlan& plan, OutputDirectory& output,
           const WriteExportOptions& options)
      : plan_(plan),
        output_(output),
        options_(options),
        reader_(&storage, manifest, {.threads = options.threads, .interrupted = options.interrupted}) {}

  // Returns how many files were finished before.
  absl::StatusOr<size_t> Run() {
    uint64_t largest = 0;
    for (const ExportFile& file : plan_.files) largest = std::max(largest, file.data_bytes);
    window_bytes_ = WindowBytes(options_.memory_bytes, reader_.buffer_bytes(), largest);
    CAIRN_ASSIGN_OR_RETURN(window_, AllocateWindow(window_bytes_));
    for (const ExportFile& file : plan_.files) CAIRN_RETURN_IF_ERROR(WriteFile(file));
    for (const ModelFile& file : plan_.model_files) CAIRN_RETURN_IF_ERROR(output_.Copy(file.name, file.path));
    CAIRN_RETURN_IF_ERROR(output_.Add(std::string(kPlainIndexName), plan_.index));
    if (options_.interrupted && options_.interrupted()) return MakeError(Reason::kInterrupted, "interrupted");
    CAIRN_RETURN_IF_ERROR(output_.Publish());
    return finished_before_;
  }

 private:
  absl::Status WriteFile(const ExportFile& file) {
    if (output_.TakeFinished(file.name, file.header.size() + file.data_bytes)) {
      ++finished_before_;
      AddDone(file.data_bytes);
      return absl::OkStatus();
    }
    CAIRN_ASSIGN_OR_RETURN(const UniqueFd fd, output_.Create(file.name, file.header.size() + file.data_bytes));
    CAIRN_RETURN_IF_ERROR(output_.Write(fd.get(), file.name, 0, file.header));
    std::vector<TensorPart> parts;
    uint64_t filled = 0, written = 0;
    const auto flush = [&]() -> absl::Status {
      CAIRN_RETURN_IF_ERROR(reader_.Read(parts, window_.data()));
      CAIRN_RETURN_IF_ERROR(output_.Write(fd.get(), file.name, file.header.size() + written, {window_.data(), filled}));
      written += filled;
      AddDone(filled);
      filled = 0;
      parts.clear();
      return absl::OkStatus();
    };
    for (uint32_t number : file.tensors) {
      const WholeTensor& tensor = plan_.tensors[number];
      const int64_t elements = *ElementCount(tensor.plain.shape);
      const auto width = static_cast<uint64_t>(BytesOf(tensor.plain.dtype));
      // A tensor that fits is not cut, because a permuted one would then be read in several passes.
      const uint64_t bytes = static_cast<uint64_t>(elements) * width;
      if (filled > 0 && bytes > window_bytes_ - filled) CAIRN_RETURN_IF_ERROR(flush());
      for (int64_t begin = 0; begin < elements;) {
        const auto room = static_cast<int64_t>((window_bytes_ - filled) / width);
        const int64_t end = std::min(elements, begin + room);
        parts.push_back({&tensor, begin, end, filled});
        filled += static_cast<uint64_t>(end - begin) * width;
        begin = end;
        if (begin < elements) CAIRN_RETURN_IF_ERROR(flush());
      }
    }
    if (filled > 0) CAIRN_RETURN_IF_ERROR(flush());
    return output_.Finish(fd.get(), file.name);
  }

  void AddDone(uint64_t bytes) {
    done_ += bytes;
    if (options_.progress) options_.progress(done_);
  }

  const ExportPlan& plan_;
  OutputDirectory& output_;
  const WriteExportOptions& options_;
  TensorReader reader_;
  uint64_t window_bytes_ = 0;
  AlignedBuffer window_;
  uint64_t done_ = 0;
  size_t finished_before_ = 0;
};

}  // namespace

absl::StatusOr<size_t> WriteExport(PosixStorage& storage, const Manifest& manifest, const ExportPlan& plan,
                                   const std::string& directory, const WriteExportOptions& options) {
  OutputDirectory output(directory, options.identity);
  CAIRN_RETURN_IF_ERROR(output.Open([&](std::string_view name) {
    return std::any_of(plan.model_files.begin(), plan.model_files.end(),
                       [&](const ModelFile& file) { return file.name == name; });
  }));
  const absl::StatusOr<size_t> finished_before = Exporter(storage, manifest, plan, output, options).Run();
  if (!finished_before.ok()) return output.Abandon(finished_before.status());
  return finished_before;
}

}  // namespace cairn
