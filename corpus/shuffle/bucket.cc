#include "corpus/shuffle/bucket.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/resources/aligned_buffer.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/shuffle/varint.h"

namespace cairn::corpus {
namespace {

constexpr uint32_t kMagic = 0x32425343;  // "CSB2"
constexpr size_t kHeaderBytes = 32;
constexpr uint64_t kLargestRegion = uint64_t{1} << 30;

struct BlockHeader {
  uint32_t magic;
  uint32_t crc;  // covers what follows this field
  uint32_t filled;
  uint32_t records;
  uint64_t base;
  uint64_t zero;
};
static_assert(sizeof(BlockHeader) == kHeaderBytes);

absl::Status Corrupt(std::string_view what) {
  return MakeError(
      Reason::kChecksumMismatch,
      absl::StrCat("a block of the temporary file came back other than it was written: ", std::string(what)));
}

}  // namespace

absl::Status VisitBlock(std::string_view block, absl::FunctionRef<void(const BucketRecord&)> visitor) {
  BlockHeader header;
  if (block.size() < kHeaderBytes) return Corrupt("it is short");
  std::memcpy(&header, block.data(), kHeaderBytes);
  if (header.magic != kMagic || header.filled < kHeaderBytes || header.filled > block.size()) {
    return Corrupt("its header is wrong");
  }
  if (Crc32c(block.data() + 8, header.filled - 8) != header.crc) return Corrupt("its checksum is wrong");
  const char* in = block.data() + kHeaderBytes;
  const char* const end = block.data() + header.filled;
  BucketRecord record;
  record.position = header.base;
  for (uint32_t i = 0; i < header.records; ++i) {
    uint64_t gap, length;
    in = GetVarint(in, end, &gap);
    if (in == nullptr) return Corrupt("a record is cut off");
    record.position += static_cast<uint64_t>(UnZigZag(gap));
    record.start = in;
    in = GetVarint(in, end, &length);
    if (in == nullptr) return Corrupt("a record is cut off");
    record.is_long = (length & 1) != 0;
    record.length = length >> 1;
    uint64_t stored = record.length;
    if (record.is_long) {
      // The list begins with its own size.
      const char* const list = GetVarint(in, end, &stored);
      if (list == nullptr) return Corrupt("a record is cut off");
      stored += static_cast<uint64_t>(list - in);
    }
    if (stored > static_cast<uint64_t>(end - in)) return Corrupt("a record is cut off");
    record.line = {in, static_cast<size_t>(stored)};
    in += stored;
    visitor(record);
  }
  return in == end ? absl::OkStatus() : Corrupt("it has bytes behind its records");
}

BucketLine ParseBucketLine(const char* start) {
  uint64_t length = 0;
  const char* const data = GetVarint(start, start + kMaxVarintBytes, &length);
  return {length >> 1, (length & 1) != 0, data};
}

std::vector<std::pair<uint64_t, uint64_t>> ParseLongLine(const char* data) {
  uint64_t size = 0;
  const char* in = GetVarint(data, data + kMaxVarintBytes, &size);
  const char* const end = in + size;
  std::vector<std::pair<uint64_t, uint64_t>> extents;
  while (in != nullptr && in < end) {
    uint64_t offset = 0, bytes = 0;
    in = GetVarint(in, end, &offset);
    if (in != nullptr) in = GetVarint(in, end, &bytes);
    if (in != nullptr) extents.emplace_back(offset * kIoAlignment, bytes);
  }
  return extents;
}

BucketWriter::BucketWriter(ScratchFile& scratch, char* memory, size_t memory_bytes, size_t block_bytes,
                           uint32_t buckets)
    : scratch_(scratch), block_bytes_(block_bytes), filling_(buckets), buckets_(buckets) {
  for (size_t offset = 0; offset + block_bytes <= memory_bytes; offset += block_bytes) {
    free_.push_back(memory + offset);
  }
  std::reverse(free_.begin(), free_.end());
}

BucketWriter::~BucketWriter() { WaitForWrites().IgnoreError(); }

absl::Status BucketWriter::WaitForWrites() {
  MutexLock lock(mutex_);
  while (writing_ > 0) changed_.Wait(mutex_);
  return error_;
}

absl::StatusOr<char*> BucketWriter::AcquireBlock() {
  MutexLock lock(mutex_);
  while (free_.empty()) changed_.Wait(mutex_);
  if (!error_.ok()) return error_;
  char* const block = free_.back();
  free_.pop_back();
  return block;
}

void BucketWriter::StartWrite(char* block, size_t bytes, uint64_t offset) {
  {
    MutexLock lock(mutex_);
    ++writing_;
  }
  scratch_.Write(block, bytes, offset, [this, block](const absl::Status& status) {
    MutexLock lock(mutex_);
    if (error_.ok()) error_ = status;
    free_.push_back(block);
    --writing_;
    changed_.NotifyAll();
  });
}

absl::Status BucketWriter::WriteBlock(uint32_t bucket) {
  Filling& filling = filling_[bucket];
  BlockHeader header{kMagic, 0, static_cast<uint32_t>(filling.filled), filling.records, filling.base, 0};
  std::memcpy(filling.block, &header, kHeaderBytes);
  header.crc = Crc32c(filling.block + 8, filling.filled - 8);
  std::memcpy(filling.block, &header, kHeaderBytes);
  const size_t stored = RoundUpToIo(filling.filled);
  std::memset(filling.block + filling.filled, 0, stored - filling.filled);
  const ScratchExtent extent(scratch_.Allocate(stored), stored);
  StartWrite(filling.block, stored, extent.offset());
  buckets_[bucket].extents.push_back(extent);
  buckets_[bucket].stored_bytes += stored;
  buckets_[bucket].records += filling.records;
  filling = Filling();
  return absl::OkStatus();
}

absl::Status BucketWriter::Put(uint32_t bucket, LinePosition position, uint64_t length, bool is_long,
                               std::string_view bytes) {
  Filling& filling = filling_[bucket];
  if (filling.block != nullptr && filling.filled + 2 * kMaxVarintBytes + bytes.size() > block_bytes_) {
    CAIRN_RETURN_IF_ERROR(WriteBlock(bucket));
  }
  if (filling.block == nullptr) {
    CAIRN_ASSIGN_OR_RETURN(filling.block, AcquireBlock());
    filling.filled = kHeaderBytes;
    filling.base = filling.last = position;
  }
  char* out = filling.block + filling.filled;
  out = PutVarint(out, ZigZag(static_cast<int64_t>(position - filling.last)));
  out = PutVarint(out, length << 1 | (is_long ? 1 : 0));
  std::memcpy(out, bytes.data(), bytes.size());
  filling.filled = static_cast<size_t>(out - filling.block) + bytes.size();
  filling.last = position;
  ++filling.records;
  return absl::OkStatus();
}

absl::Status BucketWriter::Add(uint32_t bucket, LinePosition position, std::string_view line) {
  return Put(bucket, position, line.size(), false, line);
}

absl::Status BucketWriter::AddRecord(uint32_t bucket, const BucketRecord& record) {
  return Put(bucket, record.position, record.length, record.is_long, record.line);
}

absl::Status BucketWriter::WriteLongBlock() {
  const size_t stored = RoundUpToIo(long_filled_);
  std::memset(long_block_ + long_filled_, 0, stored - long_filled_);
  if (region_left_ == 0) {
    // Each region is twice as long as the one before, so that the list stays short however long the line is. The unused
    // rest of the last region is a hole.
    region_bytes_ =
        region_bytes_ == 0 ? block_bytes_ : std::min(2 * region_bytes_, kLargestRegion / block_bytes_ * block_bytes_);
    region_left_ = region_bytes_;
    long_extents_.emplace_back(scratch_.Allocate(region_bytes_), 0);
  }
  auto& [offset, bytes] = long_extents_.back();
  StartWrite(long_block_, stored, offset + bytes);
  bytes += long_filled_;
  region_left_ -= block_bytes_;
  long_block_ = nullptr;
  long_filled_ = 0;
  return absl::OkStatus();
}

absl::Status BucketWriter::LongLinePiece(std::string_view piece) {
  long_length_ += piece.size();
  while (!piece.empty()) {
    if (long_block_ == nullptr) {
      CAIRN_ASSIGN_OR_RETURN(long_block_, AcquireBlock());
    }
    const size_t taken = std::min(piece.size(), block_bytes_ - long_filled_);
    std::memcpy(long_block_ + long_filled_, piece.data(), taken);
    long_filled_ += taken;
    piece.remove_prefix(taken);
    if (long_filled_ == block_bytes_) CAIRN_RETURN_IF_ERROR(WriteLongBlock());
  }
  return absl::OkStatus();
}

absl::Status BucketWriter::EndLongLine(uint32_t bucket, LinePosition position) {
  if (long_filled_ > 0) CAIRN_RETURN_IF_ERROR(WriteLongBlock());
  std::string list;
  char number[kMaxVarintBytes];
  for (const auto& [offset, bytes] : long_extents_) {
    list.append(number, PutVarint(number, offset / kIoAlignment));
    list.append(number, PutVarint(number, bytes));
  }
  std::string sized(number, PutVarint(number, list.size()));
  sized += list;
  if (sized.size() > LongestLine(block_bytes_)) {
    return MakeError(
        Reason::kUnsupported,
        absl::StrCat("a line of ", long_length_, " bytes is too long for this memory budget: give more --memory"));
  }
  const uint64_t length = long_length_;
  long_length_ = region_left_ = region_bytes_ = 0;
  long_extents_.clear();
  return Put(bucket, position, length, true, sized);
}

absl::Status BucketWriter::Flush() {
  for (uint32_t bucket = 0; bucket < filling_.size(); ++bucket) {
    if (filling_[bucket].block != nullptr) CAIRN_RETURN_IF_ERROR(WriteBlock(bucket));
  }
  return WaitForWrites();
}

}  // namespace cairn::corpus
