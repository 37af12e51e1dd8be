#include "export/exporter.h"

#include <algorithm>
#include <vector>

#include "common/status/reason.h"
#include "common/status/status.h"
#include "export/output_directory.h"
#include "export/tensor_reader.h"
#include "export/window_stream.h"

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
    WindowSizes sizes{.memory_bytes = options_.memory_bytes, .reader_bytes = reader_.buffer_bytes()};
    for (const ExportFile& file : plan_.files) sizes.largest_file = std::max(sizes.largest_file, file.bytes());
    // A tensor that fits is not cut, because a permuted one would then be read in several passes.
    for (const WholeTensor& tensor : plan_.tensors) sizes.largest_part = std::max(sizes.largest_part, BytesOf(tensor));
    CAIRN_RETURN_IF_ERROR(stream_.Allocate(WindowBytes(sizes)));
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
    stream_.Begin(fd.get(), file.name, file.bytes());
    for (const ExportPiece& piece : file.pieces) {
      CAIRN_RETURN_IF_ERROR(AddText(piece.before));
      CAIRN_RETURN_IF_ERROR(AddTensor(plan_.tensors[piece.tensor]));
    }
    CAIRN_RETURN_IF_ERROR(AddText(file.after));
    CAIRN_RETURN_IF_ERROR(ReadTensors());
    CAIRN_RETURN_IF_ERROR(stream_.End());
    return output_.Finish(fd.get(), file.name);
  }

  static uint64_t BytesOf(const WholeTensor& tensor) {
    return static_cast<uint64_t>(*ElementCount(tensor.plain.shape) * cairn::BytesOf(tensor.plain.dtype));
  }

  absl::Status AddText(std::string_view text) {
    while (!text.empty()) {
      if (stream_.room() == 0) CAIRN_RETURN_IF_ERROR(Flush());
      const size_t size = std::min<size_t>(stream_.room(), text.size());
      std::copy_n(text.begin(), size, stream_.data() + stream_.filled());
      stream_.Grow(size);
      text.remove_prefix(size);
    }
    return absl::OkStatus();
  }

  absl::Status AddTensor(const WholeTensor& tensor) {
    const int64_t elements = *ElementCount(tensor.plain.shape);
    const auto width = static_cast<uint64_t>(cairn::BytesOf(tensor.plain.dtype));
    if (BytesOf(tensor) > stream_.room()) CAIRN_RETURN_IF_ERROR(Flush());
    for (int64_t begin = 0; begin < elements;) {
      const int64_t end = std::min(elements, begin + static_cast<int64_t>(stream_.room() / width));
      parts_.push_back({&tensor, begin, end, stream_.filled()});
      stream_.Grow(static_cast<uint64_t>(end - begin) * width);
      tensor_bytes_ += static_cast<uint64_t>(end - begin) * width;
      begin = end;
      if (begin < elements) CAIRN_RETURN_IF_ERROR(Flush());
    }
    return absl::OkStatus();
  }

  absl::Status Flush() {
    CAIRN_RETURN_IF_ERROR(ReadTensors());
    return stream_.Flush();
  }

  // Reads the tensors that the window has room for.
  absl::Status ReadTensors() {
    CAIRN_RETURN_IF_ERROR(reader_.Read(parts_, stream_.data()));
    AddDone(tensor_bytes_);
    tensor_bytes_ = 0;
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
  WindowStream stream_{output_};
  // What the window has room for and what is still to be read.
  std::vector<TensorPart> parts_;
  uint64_t tensor_bytes_ = 0;
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
