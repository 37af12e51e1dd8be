#include "foreign/write/dcp/dcp_exporter.h"

#include <libdeflate.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/resources/thread.h"
#include "common/status/status.h"
#include "foreign/read/dcp/dcp_directory.h"
#include "foreign/tensors/window_size.h"
#include "foreign/write/export_writer.h"
#include "foreign/write/torch/torch_archive_writer.h"

namespace cairn {
namespace {

// A limit for the head and the tail of a chunk's archive, which take about 1 KiB and a few bytes for each dimension.
constexpr uint64_t kMostAroundChunk = uint64_t{64} << 10;
static_assert(kDcpChunkBytes + kMostAroundChunk <= kSmallestWindowBytes);

class DcpExporter {
 public:
  DcpExporter(const DcpExportPlan& plan, ExportWriter& writer, int threads)
      : plan_(plan), writer_(writer), stream_(writer.stream()), threads_(threads) {}

  absl::Status WriteFiles() {
    uint64_t largest_file = 0;
    for (const DcpExportFile& file : plan_.files) largest_file = std::max(largest_file, file.bytes);
    CAIRN_RETURN_IF_ERROR(writer_.Allocate(0, largest_file));
    for (const DcpExportFile& file : plan_.files) {
      uint64_t tensor_bytes = 0;
      for (const DcpExportEntry& entry : file.entries) tensor_bytes += TensorBytes(entry);
      CAIRN_RETURN_IF_ERROR(writer_.WriteFile(file.name, file.bytes, tensor_bytes, [&] { return Fill(file); }));
    }
    CAIRN_RETURN_IF_ERROR(writer_.AddFingerprints(plan_.second_names));
    for (const auto& [name, bytes] : plan_.beside) CAIRN_RETURN_IF_ERROR(writer_.output().Add(name, bytes));
    return writer_.output().Add(std::string(kDcpMetadataName), plan_.metadata);
  }

 private:
  absl::Status Fill(const DcpExportFile& file) {
    for (size_t begin = 0, end = 0; begin < file.entries.size(); begin = end) {
      const DcpExportEntry& first = file.entries[begin];
      if (first.tensor == DcpExportEntry::kNoTensor) {
        CAIRN_RETURN_IF_ERROR(AddValue(first));
        end = begin + 1;
        continue;
      }
      if (EndOf(first) > WindowEnd()) CAIRN_RETURN_IF_ERROR(stream_.Flush());
      const auto fits = [&](const DcpExportEntry& entry) {
        return entry.tensor != DcpExportEntry::kNoTensor && EndOf(entry) <= WindowEnd();
      };
      for (end = begin + 1; end < file.entries.size() && fits(file.entries[end]);) ++end;
      CAIRN_RETURN_IF_ERROR(AddTensors({file.entries.data() + begin, end - begin}));
    }
    return absl::OkStatus();
  }

  static uint64_t EndOf(const DcpExportEntry& entry) { return entry.offset + entry.bytes; }
  // Returns the offset in the file at which the window ends.
  uint64_t WindowEnd() const { return stream_.origin() + stream_.filled() + stream_.room(); }

  uint64_t TensorBytes(const DcpExportEntry& entry) const {
    if (entry.tensor == DcpExportEntry::kNoTensor) return 0;
    return static_cast<uint64_t>(entry.box.size() * BytesOf(plan_.tensors[entry.tensor].plain.dtype));
  }

  // Writes zeros up to an offset of the file.
  absl::Status Pad(uint64_t offset) {
    while (stream_.origin() + stream_.filled() < offset) {
      if (stream_.room() == 0) CAIRN_RETURN_IF_ERROR(stream_.Flush());
      const uint64_t size = std::min(stream_.room(), offset - stream_.origin() - stream_.filled());
      std::memset(stream_.data() + stream_.filled(), 0, size);
      stream_.Grow(size);
    }
    return absl::OkStatus();
  }

  // Writes a value, which may be larger than the window.
  absl::Status AddValue(const DcpExportEntry& entry) {
    CAIRN_RETURN_IF_ERROR(Pad(entry.offset));
    for (std::string_view rest = entry.value; !rest.empty();) {
      if (stream_.room() == 0) CAIRN_RETURN_IF_ERROR(stream_.Flush());
      const size_t size = std::min<size_t>(stream_.room(), rest.size());
      std::memcpy(stream_.data() + stream_.filled(), rest.data(), size);
      stream_.Grow(size);
      rest.remove_prefix(size);
    }
    return Pad(EndOf(entry));
  }

  // Adds entries for which the window has room.
  absl::Status AddTensors(std::span<const DcpExportEntry> entries) {
    std::vector<TorchTensorArchive> archives;
    std::vector<TensorPart> parts;
    for (const DcpExportEntry& entry : entries) {
      CAIRN_RETURN_IF_ERROR(Pad(entry.offset));
      const WholeTensor& tensor = plan_.tensors[entry.tensor];
      const TorchTensorArchive& archive = archives.emplace_back(tensor.plain.dtype, entry.box.shape);
      const uint64_t at = stream_.filled();
      std::memcpy(stream_.data() + at, archive.head().data(), archive.head().size());
      parts.push_back({&tensor, entry.begin, entry.begin + entry.box.size(), at + archive.head().size()});
      stream_.Grow(entry.bytes);
    }
    CAIRN_RETURN_IF_ERROR(writer_.ReadTensors(parts));
    return ForEachOnThreads("to write an export", entries.size(), threads_, [&](size_t i, int) {
      char* const data = stream_.data() + parts[i].at;
      const uint64_t bytes = archives[i].data_bytes();
      const std::string tail = archives[i].Tail(libdeflate_crc32(0, data, bytes));
      std::copy(tail.begin(), tail.end(), data + bytes);
      return absl::OkStatus();
    });
  }

  const DcpExportPlan& plan_;
  ExportWriter& writer_;
  WindowStream& stream_;
  const int threads_;
};

}  // namespace

absl::StatusOr<size_t> WriteDcpExport(Storage& storage, const Manifest& manifest, const DcpExportPlan& plan,
                                      const std::string& directory, const WriteExportOptions& options) {
  ExportWriter writer(storage, manifest, plan.tensors, directory, options);
  const auto is_output = [&](std::string_view name) {
    return std::any_of(plan.beside.begin(), plan.beside.end(), [&](const auto& file) { return file.first == name; });
  };
  return writer.Run(is_output, [&] { return DcpExporter(plan, writer, options.threads).WriteFiles(); });
}

}  // namespace cairn
