#include "foreign/import/bin_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/format/summary_columns.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// Enough threads that the disk always has writes to do, even while some threads compute checksums.
constexpr int kThreads = 4;

std::vector<uint64_t> BeginsOf(const std::vector<StoredItem>& items) {
  std::vector<uint64_t> begins = {0};
  for (const StoredItem& item : items) begins.push_back(begins.back() + item.bytes());
  return begins;
}

std::vector<const StoredItem*> PointersTo(const std::vector<StoredItem>& items) {
  std::vector<const StoredItem*> pointers;
  for (const StoredItem& item : items) pointers.push_back(&item);
  return pointers;
}

}  // namespace

BinStream::BinStream(std::unique_ptr<const BinDescription> description)
    : description_(std::move(description)),
      checksummer_(BeginsOf(description_->items)),
      summarizer_(PointersTo(description_->items)) {}

std::string BinStream::Path() const {
  return absl::StrCat(description_->directory, "/", description_->name, ".safetensors");
}

absl::StatusOr<BinStream> BinStream::Create(Storage& storage, BinDescription description) {
  BinStream stream(std::make_unique<const BinDescription>(std::move(description)));
  CAIRN_ASSIGN_OR_RETURN(stream.writer_, storage.Create(stream.Path(), stream.description_->header_bytes,
                                                        stream.description_->data_bytes));
  return stream;
}

absl::Status BinStream::Append(char* bytes, uint64_t size) {
  if (written_ % kPieceBytes != 0 || size > description_->data_bytes - written_) {
    return MakeError(Reason::kInternal, absl::StrCat(Path(), ": ", size, " bytes at ", written_));
  }
  const uint64_t padded = RoundUpToIo(size);
  std::memset(bytes + size, 0, padded - size);
  const size_t pieces = (padded + kPieceBytes - 1) / kPieceBytes, first = fragments_.size();
  fragments_.resize(first + pieces);
  summaries_.resize(first + pieces);
  // Any free thread computes the checksum of a piece and writes it, so that the disk does not wait for checksums.
  CAIRN_RETURN_IF_ERROR(ForEachOnThreads("to write an import", pieces, kThreads, [&](size_t i, int) {
    const uint64_t begin = i * kPieceBytes, length = std::min(kPieceBytes, padded - begin);
    fragments_[first + i] = checksummer_.Touch(written_ + begin, bytes + begin, length);
    summaries_[first + i] = summarizer_.Touch(written_ + begin, bytes + begin, length);
    return writer_->Write(description_->header_bytes + written_ + begin, bytes + begin, length);
  }));
  written_ += size;
  return absl::OkStatus();
}

absl::StatusOr<v1::FileResult> BinStream::Finish(const std::vector<uint64_t>& object_bytes) {
  std::vector<ItemChecksums> checksums = checksummer_.Combine(fragments_);
  v1::FileResult result;
  size_t object = 0;
  for (size_t i = 0; i < description_->items.size(); ++i) {
    result.add_item_checksums(checksums[i].crc32c);
    if (!description_->items[i].object) continue;
    checksums[i].object_bytes = object_bytes[object++];
    result.add_object_sizes(checksums[i].object_bytes);
  }
  const std::string header =
      RenderHeader(description_->items, checksums, description_->identity, description_->aliases);
  if (header.size() != description_->header_bytes || written_ != description_->data_bytes) {
    return MakeError(Reason::kInternal, absl::StrCat(Path(), ": header and data have ", header.size(), " and ",
                                                     written_, " bytes, planned were ", description_->header_bytes,
                                                     " and ", description_->data_bytes));
  }
  CAIRN_RETURN_IF_ERROR(writer_->Finish(header));
  v1::SummaryColumns& columns = *result.mutable_summaries();
  for (const TensorSummary& summary : summarizer_.Combine(summaries_)) AppendSummary(summary, columns);
  result.set_header_crc32c(Crc32c(header.data(), header.size()));
  result.set_file_bytes(header.size() + description_->data_bytes);
  return result;
}

}  // namespace cairn
