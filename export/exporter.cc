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
    CAIRN_RETURN_IF_ERROR(output_.Add(plan_.index_name, plan_.index));
    if (options_.interrupted && options_.interrupted()) return MakeError(Reason::kInterrupted, "interrupted");
    CAIRN_RETURN_IF_ERROR(output_.Publish());
    return finished_before_;
  }

 private:
  absl::Status WriteFile(const ExportFile& file) {
    if (output_.TakeFinished(file.name, file.bytes())) {
      ++finished_before_;
      AddDone(file.data_bytes);
      return absl::OkStatus();
    }
    CAIRN_ASSIGN_OR_RETURN(const UniqueFd fd, output_.Create(file.name, file.bytes()));
    at_ = 0;
    for (const ExportPiece& piece : file.pieces) {
      CAIRN_RETURN_IF_ERROR(AddText(fd.get(), file.name, piece.before));
      CAIRN_RETURN_IF_ERROR(AddTensor(fd.get(), file.name, plan_.tensors[piece.tensor]));
    }
    CAIRN_RETURN_IF_ERROR(AddText(fd.get(), file.name, file.after));
    CAIRN_RETURN_IF_ERROR(Flush(fd.get(), file.name));
    return output_.Finish(fd.get(), file.name);
  }

  absl::Status AddText(int fd, const std::string& name, std::string_view text) {
    if (text.size() > window_bytes_ - filled_) CAIRN_RETURN_IF_ERROR(Flush(fd, name));
    if (text.size() > window_bytes_) {
      CAIRN_RETURN_IF_ERROR(output_.Write(fd, name, at_, text));
      at_ += text.size();
      return absl::OkStatus();
    }
    std::copy(text.begin(), text.end(), window_.data() + filled_);
    filled_ += text.size();
    return absl::OkStatus();
  }

  absl::Status AddTensor(int fd, const std::string& name, const WholeTensor& tensor) {
    const int64_t elements = *ElementCount(tensor.plain.shape);
    const auto width = static_cast<uint64_t>(BytesOf(tensor.plain.dtype));
    // A tensor that fits is not cut, because a permuted one would then be read in several passes.
    if (static_cast<uint64_t>(elements) * width > window_bytes_ - filled_) CAIRN_RETURN_IF_ERROR(Flush(fd, name));
    for (int64_t begin = 0; begin < elements;) {
      const auto room = static_cast<int64_t>((window_bytes_ - filled_) / width);
      const int64_t end = std::min(elements, begin + room);
      parts_.push_back({&tensor, begin, end, filled_});
      filled_ += static_cast<uint64_t>(end - begin) * width;
      tensor_bytes_ += static_cast<uint64_t>(end - begin) * width;
      begin = end;
      if (begin < elements) CAIRN_RETURN_IF_ERROR(Flush(fd, name));
    }
    return absl::OkStatus();
  }

  // Reads the tensors that the window has room for, and writes it to the file.
  absl::Status Flush(int fd, const std::string& name) {
    if (filled_ == 0) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(reader_.Read(parts_, window_.data()));
    CAIRN_RETURN_IF_ERROR(output_.Write(fd, name, at_, {window_.data(), filled_}));
    at_ += filled_;
    AddDone(tensor_bytes_);
    filled_ = tensor_bytes_ = 0;
    parts_.clear();
    return absl::OkStatus();
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
  // These say what the window holds of the file that is being written, and where in the file it begins.
  uint64_t filled_ = 0;
  uint64_t tensor_bytes_ = 0;
  std::vector<TensorPart> parts_;
  uint64_t at_ = 0;
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
  absl::StatusOr<size_t> finished_before = Exporter(storage, manifest, plan, output, options).Run();
  if (!finished_before.ok()) return output.Abandon(finished_before.status());
  return finished_before;
}

}  // namespace cairn
