#include "agent/writer/partial_bin.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/format/safetensors_header.h"
#include "common/format/summary_columns.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {

namespace {

// What is computed of a chunk is computed of so many bytes at a time, which stay in the cache of a core.
constexpr uint64_t kTouchBytes = 256 << 10;

}  // namespace

uint64_t PaddedToBlock(uint64_t bytes) { return RoundUpToIo(bytes); }

PartialBin::PartialBin(Storage& storage, const BinWriteJob& job, const BinWriterOptions& options, const ImageFile& file,
                       int index)
    : storage_(storage),
      job_(job),
      options_(options),
      file_(file),
      index_(index),
      checksummer_(Begins()),
      summarizer_(Items()),
      // True: the slab has the files in their final form.
      contiguous_(job.staged == job.target),
      path_(absl::StrCat(job.directory, "/", file.name, ".safetensors")),
      chunks_((PaddedToBlock(file.data_bytes) + options.chunk_bytes - 1) / options.chunk_bytes),
      moves_in_(ChunksWith([&](uint32_t item) { return job.target->IsMovedIn(item); })),
      has_objects_(ChunksWith(
          [&](uint32_t item) { return !job.target->IsMovedIn(item) && item >= job.target->layout->shard_count; })),
      fragments_(chunks_),
      summaries_(chunks_),
      left_(chunks_) {
  for (uint64_t chunk = 0; chunk < chunks_; ++chunk) {
    if (checked_apart(chunk)) ++left_;
  }
}

absl::Status PartialBin::Open(const std::atomic<bool>& stop) {
  CAIRN_ASSIGN_OR_RETURN(writer_, storage_.Create(path_, file_.header_bytes, file_.data_bytes));
  writer_->StopWhen(stop);
  return absl::OkStatus();
}

absl::StatusOr<bool> PartialBin::WriteChunk(uint64_t number, AlignedBuffer& scratch) {
  const uint64_t begin = number * options_.chunk_bytes;
  const uint64_t size = std::min(options_.chunk_bytes, PaddedToBlock(file_.data_bytes) - begin);
  char* const place = job_.slab + file_.slab_offset + file_.header_bytes + begin;
  const char* bytes = place;
  if (!contiguous_) {
    if (scratch.size() == 0) scratch = AlignedBuffer(options_.chunk_bytes);
    CAIRN_RETURN_IF_ERROR(Gather(begin, size, scratch.data(), /*moved_only=*/false));
    bytes = scratch.data();
  } else if (moves_in_[number]) {
    CAIRN_RETURN_IF_ERROR(Gather(begin, size, place, /*moved_only=*/true));
  }
  if (!checked_apart(number)) Touch(number, bytes, size);
  CAIRN_RETURN_IF_ERROR(writer_->Write(file_.header_bytes + begin, bytes, size));
  return left_.fetch_sub(1) == 1;
}

uint64_t PartialBin::StagedBefore(uint64_t number) const {
  if (!contiguous_ || moves_in_[number] || has_objects_[number]) return StagingProgress::kAll;
  const uint64_t end = std::min((number + 1) * options_.chunk_bytes, file_.data_bytes);
  return file_.slab_offset + file_.header_bytes + end;
}

bool PartialBin::CheckChunk(uint64_t number) {
  const uint64_t begin = number * options_.chunk_bytes;
  const uint64_t size = std::min(options_.chunk_bytes, PaddedToBlock(file_.data_bytes) - begin);
  Touch(number, job_.slab + file_.slab_offset + file_.header_bytes + begin, size);
  return left_.fetch_sub(1) == 1;
}

void PartialBin::Touch(uint64_t number, const char* bytes, uint64_t size) {
  const uint64_t begin = number * options_.chunk_bytes;
  if (!job_.summarize) {
    fragments_[number] = checksummer_.Touch(begin, bytes, size);
    return;
  }
  const auto append = [](auto& to, auto from) { std::move(from.begin(), from.end(), std::back_inserter(to)); };
  for (uint64_t at = 0; at < size; at += kTouchBytes) {
    const uint64_t part = std::min(kTouchBytes, size - at);
    append(fragments_[number], checksummer_.Touch(begin + at, bytes + at, part));
    append(summaries_[number], summarizer_.Touch(begin + at, bytes + at, part));
  }
}

absl::StatusOr<v1::FileResult> PartialBin::Finish() {
  std::vector<ItemChecksums> checksums = checksummer_.Combine(fragments_);
  std::vector<StoredItem> items;
  items.reserve(file_.item.size());
  v1::FileResult result;
  const RankLayout& layout = *job_.target->layout;
  for (size_t i = 0; i < file_.item.size(); ++i) {
    const uint32_t number = file_.item[i];
    items.push_back(job_.target->ItemAt(number));
    result.add_item_checksums(checksums[i].crc32c);
    if (number < layout.shard_count || job_.target->IsMovedIn(number)) continue;
    checksums[i].object_bytes = job_.staging->object_bytes()[number - layout.shard_count];
    result.add_object_sizes(checksums[i].object_bytes);
  }
  if (job_.summarize) {
    v1::SummaryColumns& columns = *result.mutable_summaries();
    for (const TensorSummary& summary : summarizer_.Combine(summaries_)) AppendSummary(summary, columns);
  }
  const SaveImage& target = *job_.target;
  const BinIdentity identity = {job_.job,          job_.step,         job_.attempt, static_cast<int>(target.rank),
                                target.world_size, target.total_files};
  const std::string header = RenderHeader(items, checksums, identity, AliasesIn(target, static_cast<size_t>(index_)));
  if (header.size() != file_.header_bytes) {
    return MakeError(Reason::kInternal, absl::StrCat(path_, ": the header has ", header.size(),
                                                     " bytes; the planned length is ", file_.header_bytes));
  }
  result.set_header_crc32c(Crc32c(header.data(), header.size()));
  result.set_file_bytes(file_.bytes());
  if (contiguous_) std::memcpy(job_.slab + file_.slab_offset, header.data(), header.size());
  CAIRN_RETURN_IF_ERROR(writer_->Finish(header));
  return result;
}

absl::Status PartialBin::Remove() { return writer_ == nullptr ? absl::OkStatus() : writer_->Remove(); }

std::vector<const StoredItem*> PartialBin::Items() const {
  std::vector<const StoredItem*> items;
  for (uint32_t number : file_.item) items.push_back(&job_.target->ItemAt(number));
  return items;
}

std::vector<uint64_t> PartialBin::Begins() const {
  std::vector<uint64_t> begins = {0};
  for (uint32_t number : file_.item) begins.push_back(begins.back() + job_.target->ItemAt(number).bytes());
  return begins;
}

std::vector<bool> PartialBin::ChunksWith(const std::function<bool(uint32_t item)>& is) const {
  std::vector<bool> with(chunks_);
  uint64_t begin = 0;
  for (uint32_t number : file_.item) {
    const uint64_t end = begin + job_.target->ItemAt(number).bytes();
    if (begin < end && is(number)) {
      for (uint64_t chunk = begin / options_.chunk_bytes; chunk * options_.chunk_bytes < end; ++chunk) {
        with[chunk] = true;
      }
    }
    begin = end;
  }
  return with;
}

absl::Status PartialBin::Gather(uint64_t begin, uint64_t size, char* to, bool moved_only) const {
  if (!moved_only) std::memset(to, 0, size);
  uint64_t item_begin = 0;
  for (uint32_t number : file_.item) {
    const uint64_t item_bytes = job_.target->ItemAt(number).bytes();
    const uint64_t from = std::max(begin, item_begin);
    const uint64_t until = std::min(begin + size, item_begin + item_bytes);
    if (from < until && job_.target->IsMovedIn(number)) {
      CAIRN_RETURN_IF_ERROR(job_.fetch_moved(number - job_.target->layout->items.size(), from - item_begin,
                                             until - from, to + (from - begin)));
    } else if (from < until && !moved_only) {
      std::memcpy(to + (from - begin), job_.slab + job_.staged->slab_offset[number] + (from - item_begin),
                  until - from);
    }
    item_begin += item_bytes;
    if (item_begin >= begin + size) break;
  }
  return absl::OkStatus();
}

}  // namespace cairn
