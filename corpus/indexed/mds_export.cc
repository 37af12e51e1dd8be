#include "corpus/indexed/mds_export.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/resources/aligned_buffer.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/indexed/indexed_format.h"
#include "corpus/indexed/indexed_reader.h"
#include "corpus/indexed/mds_writer.h"
#include "corpus/io/open_source.h"
#include "corpus/io/ranged_input.h"

namespace cairn::corpus {
namespace {

constexpr size_t kReadBytes = 1 << 20;

absl::Status EndsEarly(const std::string& path) {
  return MakeError(Reason::kIndexCorrupt, absl::StrCat(path, ": it ends before what its index says"), {{"file", path}});
}

// Gives the numbers of one array of an index, one after the other.
template <typename T>
class Column {
 public:
  Column(const RangedInput& input, const std::string& path, uint64_t offset, uint64_t count)
      : input_(input), path_(path), offset_(offset), left_(count) {}

  absl::StatusOr<T> Next() {
    if (at_ == values_.size()) {
      values_.resize(static_cast<size_t>(std::min<uint64_t>(left_, input_.best_piece() / sizeof(T))));
      const size_t bytes = values_.size() * sizeof(T);
      CAIRN_ASSIGN_OR_RETURN(const size_t got, input_.Read(offset_, values_.data(), bytes));
      if (got != bytes || bytes == 0) return EndsEarly(path_);
      offset_ += bytes;
      left_ -= values_.size();
      at_ = 0;
    }
    return values_[at_++];
  }

 private:
  const RangedInput& input_;
  const std::string& path_;
  uint64_t offset_;
  uint64_t left_;  // behind values_
  std::vector<T> values_;
  size_t at_ = 0;
};

// Gives the bytes of .bin in order.
class TokenBytes {
 public:
  TokenBytes(std::string path, std::unique_ptr<ByteSource> source)
      : path_(std::move(path)), source_(std::move(source)) {}

  // Replaces `out` by the next `size` bytes.
  absl::Status Read(uint64_t size, std::string& out) {
    out.clear();
    while (out.size() < size) {
      if (unread_.empty()) {
        CAIRN_ASSIGN_OR_RETURN(const size_t got, source_->Read(buffer_.data(), buffer_.size()));
        if (got == 0) return EndsEarly(path_);
        unread_ = {buffer_.data(), got};
      }
      const size_t part = static_cast<size_t>(std::min<uint64_t>(unread_.size(), size - out.size()));
      out.append(unread_.substr(0, part));
      unread_.remove_prefix(part);
    }
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  const std::unique_ptr<ByteSource> source_;
  AlignedBuffer buffer_{kReadBytes};
  std::string_view unread_;
};

absl::Status WriteDocuments(const IndexedReader& reader, TokenBytes& bytes, MdsWriter& writer, MdsReport& report) {
  const std::string path = IdxPath(reader.prefix());
  const IndexHeader& header = reader.header();
  CAIRN_ASSIGN_OR_RETURN(const RangedInput idx, RangedInput::Open(path));
  Column<int32_t> lengths(idx, path, kIndexHeaderBytes, header.sequences);
  Column<int64_t> ends(idx, path, header.documents_offset(), header.document_indices);
  const uint64_t width = IndexedDtypeBytes(header.dtype);
  std::string sample;
  CAIRN_ASSIGN_OR_RETURN(int64_t sequence, ends.Next());
  for (uint64_t document = 0; document < reader.documents(); ++document) {
    CAIRN_ASSIGN_OR_RETURN(const int64_t end, ends.Next());
    uint64_t size = 0;
    for (; sequence < end; ++sequence) {
      CAIRN_ASSIGN_OR_RETURN(const int32_t length, lengths.Next());
      size += static_cast<uint64_t>(std::max(length, 0)) * width;
    }
    if (size == 0) {
      ++report.empty_documents;
      continue;
    }
    if (size > kMostMdsSampleBytes) {
      return MakeError(Reason::kUnsupported,
                       absl::StrCat(path, ": document ", document, " has ", size, " bytes; a sample has at most 1 GiB"),
                       {{"file", path}, {"next", "Give --sequence-length, which cuts documents."}});
    }
    CAIRN_RETURN_IF_ERROR(bytes.Read(size, sample));
    CAIRN_RETURN_IF_ERROR(writer.Add(sample));
    report.tokens += size / width;
  }
  return absl::OkStatus();
}

absl::Status WriteSequences(const IndexedReader& reader, uint64_t length, TokenBytes& bytes, MdsWriter& writer,
                            MdsReport& report) {
  const uint64_t width = IndexedDtypeBytes(reader.header().dtype);
  std::string sample;
  for (report.tokens_left = reader.tokens(); report.tokens_left >= length; report.tokens_left -= length) {
    CAIRN_RETURN_IF_ERROR(bytes.Read(length * width, sample));
    CAIRN_RETURN_IF_ERROR(writer.Add(sample));
    report.tokens += length;
  }
  return absl::OkStatus();
}

absl::StatusOr<MdsReport> Export(const MdsExportOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const auto reader, IndexedReader::Open(options.prefix));
  const uint64_t most = kMostMdsSampleBytes / IndexedDtypeBytes(reader->header().dtype);
  if (options.sequence_length && (*options.sequence_length < 1 || *options.sequence_length > most)) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("--sequence-length ", *options.sequence_length, " is not between 1 and ", most));
  }
  if (reader->multimodal()) {
    return MakeError(Reason::kUnsupported, absl::StrCat(options.prefix, " is multimodal; MDS here has only tokens"),
                     {{"file", IdxPath(options.prefix)}});
  }
  CAIRN_RETURN_IF_ERROR(VerifyIndexed(*reader, /*read_bin=*/false).status());
  MdsReport report;
  report.dtype = IndexedDtypeName(reader->header().dtype);
  CAIRN_ASSIGN_OR_RETURN(const auto writer, MdsWriter::Create({.directory = options.directory,
                                                               .dtype = reader->header().dtype,
                                                               .tokens = options.sequence_length}));
  const std::string bin = BinPath(options.prefix);
  CAIRN_ASSIGN_OR_RETURN(
      auto source,
      OpenPlainSource(bin, 0, UINT64_MAX, {.direct = false, .stop = options.stop, .file_bytes = options.bytes_done}));
  TokenBytes bytes(bin, std::move(source));
  CAIRN_RETURN_IF_ERROR(options.sequence_length
                            ? WriteSequences(*reader, *options.sequence_length, bytes, *writer, report)
                            : WriteDocuments(*reader, bytes, *writer, report));
  CAIRN_RETURN_IF_ERROR(writer->Finish());
  report.samples = writer->samples();
  report.shards = writer->shards();
  return report;
}

}  // namespace

absl::StatusOr<MdsReport> ExportMds(const MdsExportOptions& options) {
  return WithMemory(absl::StrCat("to export ", options.prefix), [&] { return Export(options); });
}

}  // namespace cairn::corpus
