#include "planner/load/read_parts.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cairn/v1/plan.pb.h"
#include "common/format/safetensors_header.h"
#include "common/format/wire.h"
#include "planner/load/overlap.h"
#include "planner/load/shared_objects.h"

namespace cairn {
namespace {

constexpr size_t kMaxVarintBytes = 10;
// What belongs to a rank lies far apart in memory, so it is fetched so many items ahead.
constexpr size_t kAhead = 8;

// Distributes the segments of each reader over rounds, and writes each rank's part.
class PartWriter {
 public:
  PartWriter(const Manifest& source, const LayoutSet& targets, const NameMatch& match, const Reads& reads,
             const LoadOptions& options)
      : source_(source), targets_(targets), match_(match), reads_(reads), options_(options), shared_(source, targets) {}

  ReadParts Write(const std::string& plan_digest, const std::string& mapping_report) {
    const size_t ranks = targets_.ranks().size();
    round_stamp_.assign(ranks, 0);
    pair_bytes_.assign(ranks, 0);
    read_fields_.resize(ranks);
    read_bytes_.resize(ranks);
    shard_copies_.reserve(reads_.uses.size());
    std::vector<size_t> first(ranks + 1, 0);  // into `order`, by reader
    for (const Segment& segment : reads_.segments) ++first[static_cast<size_t>(segment.reader) + 1];
    std::partial_sum(first.begin(), first.end(), first.begin());
    std::vector<OrderedSegment> order(reads_.segments.size());
    std::vector<size_t> next(first.begin(), first.end() - 1);
    for (uint32_t s = 0; s < reads_.segments.size(); ++s) {
      const Segment& segment = reads_.segments[s];
      const uint32_t item = reads_.items[segment.needed].item;
      order[next[static_cast<size_t>(segment.reader)]++] = {FileOf(item), s, OffsetOf(item) + segment.begin, item};
    }
    for (size_t reader = 0; reader < ranks; ++reader) {
      const std::span<OrderedSegment> own = std::span(order).subspan(first[reader], first[reader + 1] - first[reader]);
      std::sort(own.begin(), own.end(), [](const OrderedSegment& a, const OrderedSegment& b) {
        return std::tie(a.file, a.offset, a.segment) < std::tie(b.file, b.offset, b.segment);
      });
      if (!own.empty()) WriteReader(reader, own);
    }
    parts_.shared = shared_.Write();
    WriteParts(plan_digest, mapping_report);
    return std::move(parts_);
  }

 private:
  // A segment in the order of reading. Sort key and number lie together in memory, so that sorting stays in the
  // processor's cache.
  struct OrderedSegment {
    uint32_t file;
    uint32_t segment;
    uint64_t offset;
    uint32_t item;
  };
  struct PlannedRead {
    uint32_t file;
    uint64_t file_offset;
    uint64_t bytes;
    uint64_t buffer_offset;
  };
  // A copy to a target, which is in a rank's part for each rank that has the target. Most copies are one run of bytes;
  // of others the fields behind the round are in bodies_.
  struct PlannedCopy {
    uint32_t key;  // the target shard, or the number of the object in the manifest
    uint32_t round;
    uint32_t reader;
    uint32_t body_bytes;     // 0 for a run
    uint64_t source_offset;  // in the buffer of the round, or the begin of the body in bodies_
    uint64_t target_offset;
    uint64_t bytes;
  };

  bool IsObject(uint32_t item) const { return item >= source_.shards.size(); }
  const ManifestObject& ObjectOf(uint32_t item) const { return source_.objects[item - source_.shards.size()]; }
  uint32_t FileOf(uint32_t item) const { return IsObject(item) ? ObjectOf(item).file : source_.shards[item].file; }
  uint64_t OffsetOf(uint32_t item) const {
    return IsObject(item) ? ObjectOf(item).file_offset : source_.shards[item].file_offset;
  }
  // Returns the offset of a virtual file in the memory of its rank. The files lie one after the other, each padded to
  // kDataAlignment, as an agent lays them out in a slab.
  uint64_t BaseOf(uint32_t file) const {
    uint64_t base = 0;
    for (uint32_t f = file; f > 0 && source_.files[f - 1].rank == source_.files[file].rank; --f) {
      base += (source_.files[f - 1].bytes() + kDataAlignment - 1) / kDataAlignment * kDataAlignment;
    }
    return base;
  }
  void WriteReader(size_t reader, std::span<const OrderedSegment> segments);
  void Place(size_t reader, const Segment& segment, ByteRange range);
  void AddCopies(size_t reader, const Segment& segment, ByteRange range, uint64_t buffer_offset);
  void AddScattered(uint32_t key, size_t reader, const StridedCopy& copy, std::span<const DType> casts);
  void AppendCopy(const PlannedCopy& copy, uint32_t target, std::string& part) const;
  std::string_view NameOf(const ManifestShard& shard);
  void Prefetch(std::span<const OrderedSegment> segments, size_t at) const;
  void Consume(int rank, uint64_t bytes);
  void ConsumeShard(uint32_t target, uint64_t bytes);
  void FlushRound();
  void WriteFiles(std::span<const OrderedSegment> segments);
  void WriteParts(const std::string& plan_digest, const std::string& mapping_report);

  const Manifest& source_;
  const LayoutSet& targets_;
  const NameMatch& match_;
  const Reads& reads_;
  const LoadOptions& options_;
  ReadParts parts_;

  // The part of the reader whose reads are being written.
  std::string* out_ = nullptr;
  std::vector<uint32_t> files_;  // files of the manifest, in order
  uint32_t round_ = 0;
  uint64_t cursor_ = 0;  // the number of bytes used in the round's buffer
  std::vector<PlannedRead> round_reads_;
  std::vector<uint32_t> consumers_;
  bool all_consume_ = false;          // every rank takes bytes of the round
  std::vector<uint64_t> pair_bytes_;  // by consumer
  uint64_t bytes_for_all_ = 0;        // bytes that every consumer takes in addition
  std::vector<int> touched_;          // consumers that have pair_bytes_
  // If round_stamp_[rank] == stamp_, the rank is in consumers_.
  std::vector<uint64_t> round_stamp_;
  uint64_t stamp_ = 1;
  // The overlaps of the item that was computed last.
  uint32_t cached_needed_ = UINT32_MAX;
  std::map<uint32_t, Overlap> cached_overlaps_;
  std::vector<StridedCopy> scratch_;
  StoredItem named_;  // the item that was named last
  std::string name_;

  std::vector<std::string> read_fields_;  // by rank: its files and rounds, serialized
  std::vector<uint64_t> read_bytes_;
  std::string bodies_;
  std::vector<PlannedCopy> shard_copies_;
  std::vector<PlannedCopy> own_copies_;  // of objects that only their owners get
  SharedObjectCopies shared_;
};

void PartWriter::WriteReader(size_t reader, std::span<const OrderedSegment> segments) {
  out_ = &read_fields_[reader];
  WriteFiles(segments);
  round_ = 0;
  cursor_ = 0;
  ++stamp_;
  touched_.clear();
  bytes_for_all_ = 0;
  for (size_t k = 0; k < segments.size(); ++k) {
    Prefetch(segments, k);
    const Segment& segment = reads_.segments[segments[k].segment];
    const NeededItem& needed = reads_.items[segment.needed];
    const auto first = reads_.ranges.begin() + needed.first_range;
    const auto last = first + needed.ranges;
    auto range =
        std::upper_bound(first, last, segment.begin, [](uint64_t begin, const ByteRange& r) { return begin < r.end; });
    for (; range != last && range->begin < segment.end; ++range) {
      Place(reader, segment, {std::max(range->begin, segment.begin), std::min(range->end, segment.end)});
    }
  }
  FlushRound();
  if (bytes_for_all_ > 0) {
    touched_.resize(targets_.ranks().size());
    std::iota(touched_.begin(), touched_.end(), 0);
  }
  std::sort(touched_.begin(), touched_.end());
  for (int rank : touched_) {
    uint64_t& bytes = pair_bytes_[static_cast<size_t>(rank)];
    bytes += bytes_for_all_;
    if (rank != static_cast<int>(reader)) {
      parts_.totals.copies.push_back({targets_.ranks()[reader], targets_.ranks()[static_cast<size_t>(rank)], bytes});
    }
    bytes = 0;
  }
}

// Fetches the segments first, and then what they name.
void PartWriter::Prefetch(std::span<const OrderedSegment> segments, size_t at) const {
  if (at + 3 * kAhead < segments.size()) __builtin_prefetch(&reads_.segments[segments[at + 3 * kAhead].segment]);
  if (at + 2 * kAhead < segments.size()) {
    const Segment& segment = reads_.segments[segments[at + 2 * kAhead].segment];
    __builtin_prefetch(&reads_.items[segment.needed]);
    if (segment.first_use < reads_.uses.size()) __builtin_prefetch(&reads_.uses[segment.first_use]);
  }
  if (at + kAhead < segments.size()) {
    const NeededItem& needed = reads_.items[reads_.segments[segments[at + kAhead].segment].needed];
    __builtin_prefetch(&reads_.ranges[needed.first_range]);
    if (!IsObject(needed.item)) __builtin_prefetch(&source_.shards[needed.item]);
  }
}

std::string_view PartWriter::NameOf(const ManifestShard& shard) {
  const ManifestTensor& tensor = source_.tensors[shard.tensor];
  if (!shard.flat) return tensor.name;
  if (named_.name != tensor.name) named_.name = tensor.name;
  named_.box = source_.box_of(shard);
  named_.flat = source_.flat_range_of(shard);
  name_ = named_.stored_name();
  return name_;
}

void PartWriter::WriteFiles(std::span<const OrderedSegment> segments) {
  files_.clear();
  std::string nested;
  std::vector<uint64_t> offsets, lengths;
  std::vector<uint32_t> checksums;
  std::string names;  // fields of their own, which follow the others
  WireWriter name_writer(names);
  for (size_t begin = 0; begin < segments.size();) {
    const uint32_t f = segments[begin].file;
    offsets.clear();
    lengths.clear();
    checksums.clear();
    names.clear();
    size_t end = begin;
    uint32_t last = UINT32_MAX;
    for (; end < segments.size(); ++end) {
      const uint32_t item = segments[end].item;
      if (segments[end].file != f) break;
      if (end + kAhead < segments.size() && !IsObject(segments[end + kAhead].item)) {
        __builtin_prefetch(&source_.shards[segments[end + kAhead].item]);
      }
      // Imported files have no checksums, so readers need not know to which item a byte belongs; and their tensors may
      // share bytes.
      if (item == last || source_.files[f].imported()) continue;
      last = item;
      offsets.push_back(OffsetOf(item));
      if (IsObject(item)) {
        const ManifestObject& object = ObjectOf(item);
        lengths.push_back(object.slot_bytes);
        checksums.push_back(object.crc32c);
        name_writer.Bytes(v1::ReadFile::kItemNamesFieldNumber, Manifest::item_of(object).stored_name());
      } else {
        const ManifestShard& shard = source_.shards[item];
        lengths.push_back(shard.bytes);
        checksums.push_back(shard.crc32c);
        name_writer.Bytes(v1::ReadFile::kItemNamesFieldNumber, NameOf(shard));
      }
    }
    const ManifestFile& file = source_.files[f];
    files_.push_back(f);
    nested.clear();
    WireWriter inner(nested);
    const std::string path = source_.path_of(file);
    inner.String(v1::ReadFile::kPathFieldNumber,
                 options_.directory.empty() ? path : absl::StrCat(options_.directory, "/", path));
    inner.Number(v1::ReadFile::kHeaderBytesFieldNumber, file.header_bytes);
    inner.Number(v1::ReadFile::kFileBytesFieldNumber, file.bytes());
    inner.Fixed32(v1::ReadFile::kHeaderCrc32CFieldNumber, file.header_crc32c);
    inner.Packed(v1::ReadFile::kItemOffsetsFieldNumber, offsets);
    inner.Packed(v1::ReadFile::kItemSizesFieldNumber, lengths);
    inner.PackedFixed32(v1::ReadFile::kItemChecksumsFieldNumber, checksums);
    nested.append(names);
    inner.Number(v1::ReadFile::kUnverifiedFieldNumber, file.imported() ? 1 : 0);
    inner.Number(v1::ReadFile::kModifiedNsFieldNumber, static_cast<uint64_t>(file.modified_ns));
    WireWriter(*out_).Bytes(v1::ReadPlan::kFilesFieldNumber, nested);
    begin = end;
  }
}

void PartWriter::Place(size_t reader, const Segment& segment, ByteRange range) {
  const uint32_t item = reads_.items[segment.needed].item;
  const uint64_t offset = OffsetOf(item) + range.begin;
  const uint64_t bytes = range.end - range.begin;
  const auto file =
      static_cast<uint32_t>(std::lower_bound(files_.begin(), files_.end(), FileOf(item)) - files_.begin());
  const bool continues = !round_reads_.empty() && round_reads_.back().file == file &&
                         round_reads_.back().file_offset + round_reads_.back().bytes == offset;
  uint64_t at =
      continues ? cursor_ : (cursor_ + kDataAlignment - 1) / kDataAlignment * kDataAlignment + offset % kDataAlignment;
  bool extend = continues;
  if (options_.owners_read) {
    // The memory of a rank is its own buffer, so nothing is read into it and nothing moves within it.
    at = BaseOf(FileOf(item)) + offset;
  } else if (at + bytes > options_.round_bytes) {
    FlushRound();
    at = offset % kDataAlignment;
    extend = false;
  }
  if (extend) {
    round_reads_.back().bytes += bytes;
  } else {
    round_reads_.push_back({file, offset, bytes, at});
  }
  cursor_ = at + bytes;
  read_bytes_[reader] += bytes;
  auto& totals = parts_.totals.reads;
  const int rank = targets_.ranks()[reader];
  if (totals.empty() || totals.back().rank != rank || totals.back().file != FileOf(item)) {
    totals.push_back({rank, FileOf(item), 0});
  }
  totals.back().bytes += bytes;
  AddCopies(reader, segment, range, at);
}

void PartWriter::AddCopies(size_t reader, const Segment& segment, ByteRange range, uint64_t buffer_offset) {
  const uint32_t item = reads_.items[segment.needed].item;
  if (IsObject(item)) {
    const auto number = item - static_cast<uint32_t>(source_.shards.size());
    if (shared_.Has(number)) {
      shared_.Add(number, {round_, static_cast<uint32_t>(reader), buffer_offset, range.begin, range.end - range.begin});
      bytes_for_all_ += range.end - range.begin;
      all_consume_ = true;
      return;
    }
    own_copies_.push_back(
        {number, round_, static_cast<uint32_t>(reader), 0, buffer_offset, range.begin, range.end - range.begin});
    const auto& ranks = targets_.ranks();
    Consume(
        static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), *source_.objects[number].rank) - ranks.begin()),
        range.end - range.begin);
    return;
  }
  const ManifestShard& shard = source_.shards[item];
  const int element = BytesOf(source_.tensors[shard.tensor].dtype);
  const FlatRange part{static_cast<int64_t>(range.begin) / element, static_cast<int64_t>(range.end) / element};
  if (cached_needed_ != segment.needed) {
    cached_needed_ = segment.needed;
    cached_overlaps_.clear();
  }
  for (uint32_t u = segment.first_use; u < segment.last_use; ++u) {
    const Use& use = reads_.uses[u];
    if (use.end <= range.begin || use.begin >= range.end) continue;
    if (use.is_run()) {
      const uint64_t begin = std::max(use.begin, range.begin), end = std::min(use.end, range.end);
      shard_copies_.push_back({use.target, round_, static_cast<uint32_t>(reader), 0,
                               buffer_offset + begin - range.begin, use.target_begin + begin - use.begin, end - begin});
      ConsumeShard(use.target, end - begin);
      continue;
    }
    auto overlap = cached_overlaps_.find(u);
    if (overlap == cached_overlaps_.end()) {
      overlap = cached_overlaps_.emplace(u, OverlapOf(source_, shard, targets_, match_, use)).first;
    }
    std::span<const DType> casts;
    if (use.link != NameMatch::kNone) casts = match_.links[use.link].casts;
    scratch_.clear();
    overlap->second.AppendCopies(part, element, scratch_);
    uint64_t bytes = 0;
    for (StridedCopy& copy : scratch_) {
      copy.source_offset += static_cast<int64_t>(buffer_offset);
      AddScattered(use.target, reader, copy, casts);
      bytes += static_cast<uint64_t>(copy.bytes());
    }
    if (bytes > 0) ConsumeShard(use.target, bytes);
  }
}

void PartWriter::AddScattered(uint32_t key, size_t reader, const StridedCopy& copy, std::span<const DType> casts) {
  const uint64_t at = bodies_.size();
  WireWriter writer(bodies_);
  writer.Number(v1::Copy::kSourceOffsetFieldNumber, static_cast<uint64_t>(copy.source_offset));
  writer.Number(v1::Copy::kTargetOffsetFieldNumber, static_cast<uint64_t>(copy.target_offset));
  writer.Number(v1::Copy::kElementBytesFieldNumber, static_cast<uint64_t>(copy.element_bytes));
  writer.Packed(v1::Copy::kExtentsFieldNumber, copy.extent);
  writer.Packed(v1::Copy::kSourceStridesFieldNumber, copy.source_stride);
  writer.Packed(v1::Copy::kTargetStridesFieldNumber, copy.target_stride);
  if (casts.size() > 1) writer.Packed(v1::Copy::kCastsFieldNumber, casts);
  shard_copies_.push_back(
      {key, round_, static_cast<uint32_t>(reader), static_cast<uint32_t>(bodies_.size() - at), at, 0, 0});
}

void PartWriter::AppendCopy(const PlannedCopy& copy, uint32_t target, std::string& part) const {
  // The length goes before the fields, so they are written on their own first.
  char fields[8 * (1 + kMaxVarintBytes)];
  char* end = fields;
  const auto number = [&](int field, uint64_t value) {
    if (value == 0) return;
    *end++ = static_cast<char>(field << 3);
    for (; value >= 0x80; value >>= 7) *end++ = static_cast<char>(value | 0x80);
    *end++ = static_cast<char>(value);
  };
  number(v1::Copy::kSourceRankFieldNumber, static_cast<uint64_t>(targets_.ranks()[copy.reader]));
  number(v1::Copy::kRoundFieldNumber, copy.round);
  std::string_view body;
  if (copy.body_bytes == 0) {
    number(v1::Copy::kSourceOffsetFieldNumber, copy.source_offset);
    number(v1::Copy::kTargetOffsetFieldNumber, copy.target_offset);
    number(v1::Copy::kElementBytesFieldNumber, copy.bytes);
  } else {
    body = std::string_view(bodies_).substr(copy.source_offset, copy.body_bytes);
  }
  const char* const last = end;
  number(v1::Copy::kTargetFieldNumber, target);
  part.push_back(static_cast<char>(v1::ReadPlan::kCopiesFieldNumber << 3 | 2));
  WireWriter(part).Varint(static_cast<size_t>(end - fields) + body.size());
  part.append(fields, static_cast<size_t>(last - fields));
  part.append(body);
  part.append(last, static_cast<size_t>(end - last));
}

void PartWriter::Consume(int rank, uint64_t bytes) {
  const auto r = static_cast<size_t>(rank);
  if (round_stamp_[r] != stamp_) {
    round_stamp_[r] = stamp_;
    consumers_.push_back(static_cast<uint32_t>(rank));
  }
  if (pair_bytes_[r] == 0) touched_.push_back(rank);
  pair_bytes_[r] += bytes;
}

void PartWriter::ConsumeShard(uint32_t target, uint64_t bytes) {
  for (uint32_t layout : targets_.HoldersOf(target)) {
    for (int rank : targets_.layouts()[layout].rank_indices) Consume(rank, bytes);
  }
}

void PartWriter::FlushRound() {
  if (round_reads_.empty()) return;
  std::string nested, read;
  WireWriter round(nested);
  for (const PlannedRead& planned : round_reads_) {
    read.clear();
    WireWriter writer(read);
    writer.Number(v1::Read::kFileFieldNumber, planned.file);
    writer.Number(v1::Read::kFileOffsetFieldNumber, planned.file_offset);
    writer.Number(v1::Read::kBytesFieldNumber, planned.bytes);
    writer.Number(v1::Read::kBufferOffsetFieldNumber, planned.buffer_offset);
    round.Bytes(v1::ReadRound::kReadsFieldNumber, read);
  }
  round.Number(v1::ReadRound::kBufferBytesFieldNumber, cursor_);
  if (all_consume_) {
    consumers_.resize(targets_.ranks().size());
    std::iota(consumers_.begin(), consumers_.end(), 0);
  }
  std::sort(consumers_.begin(), consumers_.end());
  for (uint32_t& consumer : consumers_) consumer = static_cast<uint32_t>(targets_.ranks()[consumer]);
  round.Packed(v1::ReadRound::kConsumersFieldNumber, consumers_);
  WireWriter(*out_).Bytes(v1::ReadPlan::kRoundsFieldNumber, nested);
  round_reads_.clear();
  consumers_.clear();
  all_consume_ = false;
  cursor_ = 0;
  ++round_;
  ++stamp_;
}

void PartWriter::WriteParts(const std::string& plan_digest, const std::string& mapping_report) {
  // The copies are sorted by target shard, and then the copies of each rank by (round, source rank).
  std::vector<size_t> first(targets_.shard_count() + 1, 0);
  for (const PlannedCopy& copy : shard_copies_) ++first[copy.key + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<uint32_t> by_target(shard_copies_.size());
  {
    std::vector<size_t> next(first.begin(), first.end() - 1);
    for (uint32_t i = 0; i < shard_copies_.size(); ++i) by_target[next[shard_copies_[i].key]++] = i;
  }
  struct Line {
    uint32_t round;
    uint32_t reader;
    uint32_t target;
    const PlannedCopy* copy;
  };
  std::vector<Line> lines;
  std::vector<std::vector<uint32_t>> own_objects(targets_.ranks().size());  // their numbers in the manifest
  for (uint32_t n = 0; n < source_.objects.size(); ++n) {
    if (shared_.Has(n)) continue;
    const auto& ranks = targets_.ranks();
    const auto owner = std::lower_bound(ranks.begin(), ranks.end(), *source_.objects[n].rank);
    own_objects[static_cast<size_t>(owner - ranks.begin())].push_back(n);
  }
  std::vector<std::vector<uint32_t>> own_bodies(source_.objects.size());
  for (uint32_t i = 0; i < own_copies_.size(); ++i) own_bodies[own_copies_[i].key].push_back(i);
  std::string nested;
  for (size_t r = 0; r < targets_.ranks().size(); ++r) {
    const uint32_t layout_number = targets_.rank_layouts()[r];
    const LayoutSet::Layout& layout = targets_.layouts()[layout_number];
    std::string& part = parts_.own.emplace_back();
    WireWriter writer(part);
    writer.String(v1::ReadPlan::kPlanDigestFieldNumber, plan_digest);
    writer.String(v1::ReadPlan::kLayoutDigestFieldNumber, targets_.layout_digests()[layout_number]);
    writer.Number(v1::ReadPlan::kRankFieldNumber, static_cast<uint64_t>(targets_.ranks()[r]));
    part.append(read_fields_[r]);
    read_fields_[r] = std::string();
    lines.clear();
    const std::span<const uint32_t> shards = targets_.ItemsOf(layout);
    for (uint32_t i = 0; i < shards.size(); ++i) {
      if (shards[i] >= LayoutSet::kInvalidShard) continue;
      for (size_t k = first[shards[i]]; k < first[shards[i] + 1]; ++k) {
        if (k + kAhead < by_target.size()) __builtin_prefetch(&shard_copies_[by_target[k + kAhead]]);
        const PlannedCopy& copy = shard_copies_[by_target[k]];
        lines.push_back({copy.round, copy.reader, i, &copy});
      }
    }
    std::string objects;
    uint32_t target = layout.shards;
    for (uint32_t n : own_objects[r]) {
      const ManifestObject& object = source_.objects[n];
      nested.clear();
      WireWriter inner(nested);
      inner.String(v1::ReadObject::kNameFieldNumber, object.name);
      inner.Number(v1::ReadObject::kBytesFieldNumber, object.bytes);
      inner.Number(v1::ReadObject::kPerRankFieldNumber, 1);
      inner.Number(v1::ReadObject::kRankFieldNumber, static_cast<uint64_t>(*object.rank));
      WireWriter(objects).Bytes(v1::ReadPlan::kObjectsFieldNumber, nested);
      for (uint32_t i : own_bodies[n]) {
        lines.push_back({own_copies_[i].round, own_copies_[i].reader, target, &own_copies_[i]});
      }
      ++target;
    }
    std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
      return std::pair(a.round, a.reader) < std::pair(b.round, b.reader);
    });
    for (const Line& line : lines) AppendCopy(*line.copy, line.target, part);
    part.append(objects);
    writer.Number(v1::ReadPlan::kReadBytesFieldNumber, read_bytes_[r]);
    // Only one rank gets the report, because it may be longer than the rest of a rank's part.
    if (r == 0) writer.String(v1::ReadPlan::kMappingReportFieldNumber, mapping_report);
    writer.Number(v1::ReadPlan::kFirstSharedTargetFieldNumber, target);
    part.shrink_to_fit();
  }
}

}  // namespace

ReadParts WriteReadParts(const Manifest& source, const LayoutSet& targets, const NameMatch& match, const Reads& reads,
                         const LoadOptions& options, const std::string& plan_digest,
                         const std::string& mapping_report) {
  return PartWriter(source, targets, match, reads, options).Write(plan_digest, mapping_report);
}

}  // namespace cairn
