#include "corpus/preprocess/partitioned_writer.h"

#include <cstring>
#include <span>
#include <utility>

#include "common/status/status.h"
#include "corpus/io/output_place.h"

namespace cairn::corpus {
namespace {

struct RecordHeader {
  uint32_t ids, sequences;
};

template <typename T>
std::string_view BytesOf(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<PartitionedWriter>> PartitionedWriter::Create(const std::string& prefix,
                                                                             IndexedWriter::Options options,
                                                                             int partitions) {
  CAIRN_ASSIGN_OR_RETURN(auto writer, IndexedWriter::Create(prefix, options));
  std::unique_ptr<PartitionedWriter> result(new PartitionedWriter(std::move(writer), options.multimodal, partitions));
  const std::string directory = ScratchDirectoryFor(BinPath(prefix));
  for (int i = 1; i < partitions; ++i) result->waiting_.emplace_back(directory);
  return result;
}

absl::Status PartitionedWriter::Add(uint64_t first, const EncodedDocuments& documents) {
  std::span<const uint32_t> ids = documents.ids;
  std::span<const int32_t> lengths = documents.sequence_lengths;
  std::span<const int8_t> modes = documents.modes;
  for (size_t i = 0; i < documents.document_sequences.size(); ++i) {
    const auto own_lengths = lengths.first(documents.document_sequences[i]);
    lengths = lengths.subspan(own_lengths.size());
    const auto own_modes = modes.first(multimodal_ ? own_lengths.size() : 0);
    modes = modes.subspan(own_modes.size());
    size_t count = 0;
    for (const int32_t length : own_lengths) count += static_cast<size_t>(length);
    const auto own_ids = ids.first(count);
    ids = ids.subspan(count);
    const uint64_t partition = (first + i) % partitions_;
    if (partition == 0) {
      CAIRN_RETURN_IF_ERROR(writer_->AddDocument(own_ids, own_lengths, own_modes));
      continue;
    }
    const RecordHeader header{static_cast<uint32_t>(own_ids.size()), static_cast<uint32_t>(own_lengths.size())};
    Spool& spool = waiting_[partition - 1];
    CAIRN_RETURN_IF_ERROR(spool.Append(BytesOf(std::span(&header, 1))));
    CAIRN_RETURN_IF_ERROR(spool.Append(BytesOf(own_lengths)));
    CAIRN_RETURN_IF_ERROR(spool.Append(BytesOf(own_modes)));
    CAIRN_RETURN_IF_ERROR(spool.Append(BytesOf(own_ids)));
  }
  return absl::OkStatus();
}

absl::Status PartitionedWriter::Replay(Spool& spool) {
  std::string pending;
  std::vector<int32_t> lengths;
  std::vector<int8_t> modes;
  std::vector<uint32_t> ids;
  return spool.Read([&](std::string_view piece) -> absl::Status {
    pending.append(piece);
    size_t at = 0;
    while (pending.size() - at >= sizeof(RecordHeader)) {
      RecordHeader header;
      std::memcpy(&header, pending.data() + at, sizeof(header));
      const size_t length_bytes = size_t{header.sequences} * 4, id_bytes = size_t{header.ids} * 4;
      const size_t mode_bytes = multimodal_ ? header.sequences : 0;
      if (pending.size() - at < sizeof(header) + length_bytes + mode_bytes + id_bytes) break;
      lengths.resize(header.sequences);
      modes.resize(mode_bytes);
      ids.resize(header.ids);
      at += sizeof(header);
      if (length_bytes != 0) std::memcpy(lengths.data(), pending.data() + at, length_bytes);
      at += length_bytes;
      if (mode_bytes != 0) std::memcpy(modes.data(), pending.data() + at, mode_bytes);
      at += mode_bytes;
      if (id_bytes != 0) std::memcpy(ids.data(), pending.data() + at, id_bytes);
      at += id_bytes;
      CAIRN_RETURN_IF_ERROR(writer_->AddDocument(ids, lengths, modes));
    }
    pending.erase(0, at);
    return absl::OkStatus();
  });
}

absl::Status PartitionedWriter::Finish() {
  for (Spool& spool : waiting_) CAIRN_RETURN_IF_ERROR(Replay(spool));
  waiting_.clear();
  return writer_->Finish();
}

}  // namespace cairn::corpus
