#include "foreign/write/exporter.h"

#include <algorithm>
#include <vector>

#include "common/status/status.h"
#include "foreign/write/export_writer.h"

namespace cairn {
namespace {

class Exporter {
 public:
  Exporter(const ExportPlan& plan, ExportWriter& writer) : plan_(plan), writer_(writer), stream_(writer.stream()) {}

  absl::Status WriteFiles() {
    uint64_t largest_file = 0;
    for (const ExportFile& file : plan_.files) largest_file = std::max(largest_file, file.bytes());
    // A tensor that fits into a window is not cut, because a cut tensor that is permuted would be read in several
    // passes.
    uint64_t largest_tensor = 0;
    for (const WholeTensor& tensor : plan_.tensors) largest_tensor = std::max(largest_tensor, BytesOf(tensor));
    CAIRN_RETURN_IF_ERROR(writer_.Allocate(largest_tensor, largest_file));
    for (const ExportFile& file : plan_.files) {
      CAIRN_RETURN_IF_ERROR(writer_.WriteFile(file.name, file.bytes(), file.data_bytes, [&] { return Fill(file); }));
    }
    CAIRN_RETURN_IF_ERROR(writer_.AddFingerprints());
    for (const ModelFile& file : plan_.model_files) {
      CAIRN_RETURN_IF_ERROR(writer_.output().Copy(file.name, file.path));
    }
    return writer_.output().Add(plan_.index_name, plan_.index);
  }

 private:
  absl::Status Fill(const ExportFile& file) {
    for (const ExportPiece& piece : file.pieces) {
      CAIRN_RETURN_IF_ERROR(AddText(piece.before));
      CAIRN_RETURN_IF_ERROR(AddTensor(plan_.tensors[piece.tensor]));
    }
    CAIRN_RETURN_IF_ERROR(AddText(file.after));
    return ReadTensors();
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
    CAIRN_RETURN_IF_ERROR(writer_.ReadTensors(parts_));
    parts_.clear();
    return absl::OkStatus();
  }

  const ExportPlan& plan_;
  ExportWriter& writer_;
  WindowStream& stream_;
  // The parts that are still to be read; the window has room for them.
  std::vector<TensorPart> parts_;
};

}  // namespace

absl::StatusOr<size_t> WriteExport(Storage& storage, const Manifest& manifest, const ExportPlan& plan,
                                   const std::string& directory, const WriteExportOptions& options) {
  ExportWriter writer(storage, manifest, plan.tensors, directory, options);
  const auto is_output = [&](std::string_view name) {
    return std::any_of(plan.model_files.begin(), plan.model_files.end(),
                       [&](const ModelFile& file) { return file.name == name; });
  };
  return writer.Run(is_output, [&] { return Exporter(plan, writer).WriteFiles(); });
}

}  // namespace cairn
