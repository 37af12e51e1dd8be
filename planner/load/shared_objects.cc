#include "planner/load/shared_objects.h"

#include <algorithm>
#include <tuple>

#include "cairn/v1/plan.pb.h"
#include "common/format/wire.h"
#include "planner/load/reads.h"

namespace cairn {

SharedObjectCopies::SharedObjectCopies(const Manifest& source, const LayoutSet& targets)
    : source_(source), targets_(targets) {
  for (const ManifestObject& object : source_.objects) {
    if (ConsumersOf(source_, targets_, object) == ObjectConsumers::kOwner) {
      number_.push_back(kOwn);
      continue;
    }
    number_.push_back(static_cast<uint32_t>(bytes_.size()));
    bytes_.push_back(object.bytes);
  }
}

void SharedObjectCopies::Add(uint32_t object, const Piece& piece) { copies_.push_back({number_[object], piece}); }

uint64_t SharedObjectCopies::ReaderOf(const Copy& copy) const {
  return static_cast<uint64_t>(targets_.ranks()[copy.piece.reader]);
}

std::string SharedObjectCopies::WriteGroups() const {
  std::string out, nested;
  std::vector<uint32_t> ranks;
  std::vector<uint64_t> bytes;
  for (size_t begin = 0; begin < source_.objects.size();) {
    const ManifestObject& first = source_.objects[begin];
    ranks.clear();
    bytes.clear();
    size_t end = begin;
    for (; end < source_.objects.size(); ++end) {
      const ManifestObject& object = source_.objects[end];
      if (object.name != first.name || object.rank.has_value() != first.rank.has_value()) break;
      if (number_[end] == kOwn) continue;
      bytes.push_back(object.bytes);
      if (object.rank) ranks.push_back(static_cast<uint32_t>(*object.rank));
    }
    begin = end;
    if (bytes.empty()) continue;
    nested.clear();
    WireWriter group(nested);
    group.String(v1::SharedObjectGroup::kNameFieldNumber, first.name);
    group.Number(v1::SharedObjectGroup::kPerRankFieldNumber, first.rank ? 1 : 0);
    group.Packed(v1::SharedObjectGroup::kRanksFieldNumber, ranks);
    group.Packed(v1::SharedObjectGroup::kBytesFieldNumber, bytes);
    WireWriter(out).Bytes(v1::SharedObjects::kGroupsFieldNumber, nested);
  }
  return out;
}

void SharedObjectCopies::WritePiece(const Copy& copy, std::string& out) const {
  std::string nested;
  WireWriter writer(nested);
  writer.Number(v1::Copy::kSourceRankFieldNumber, ReaderOf(copy));
  writer.Number(v1::Copy::kRoundFieldNumber, copy.piece.round);
  writer.Number(v1::Copy::kSourceOffsetFieldNumber, copy.piece.source_offset);
  writer.Number(v1::Copy::kTargetOffsetFieldNumber, copy.piece.begin);
  writer.Number(v1::Copy::kTargetFieldNumber, copy.object);
  writer.Number(v1::Copy::kElementBytesFieldNumber, copy.piece.bytes);
  WireWriter(out).Bytes(v1::SharedObjects::kPiecesFieldNumber, nested);
}

size_t SharedObjectCopies::WriteRun(size_t begin, std::string& out) const {
  const Copy& first = copies_[begin];
  std::vector<uint64_t> offsets;
  size_t end = begin;
  for (; end < copies_.size(); ++end) {
    const Copy& copy = copies_[end];
    if (copy.piece.round != first.piece.round || copy.piece.reader != first.piece.reader || !IsWhole(copy) ||
        copy.object != first.object + (end - begin)) {
      break;
    }
    offsets.push_back(copy.piece.source_offset);
  }
  std::string nested;
  WireWriter writer(nested);
  writer.Number(v1::SharedRun::kSourceRankFieldNumber, ReaderOf(first));
  writer.Number(v1::SharedRun::kRoundFieldNumber, first.piece.round);
  writer.Number(v1::SharedRun::kFirstObjectFieldNumber, first.object);
  writer.Packed(v1::SharedRun::kSourceOffsetsFieldNumber, offsets);
  WireWriter(out).Bytes(v1::SharedObjects::kRunsFieldNumber, nested);
  return end;
}

std::string SharedObjectCopies::Write() {
  std::string objects = WriteGroups();
  if (objects.empty()) return objects;
  std::sort(copies_.begin(), copies_.end(), [](const Copy& a, const Copy& b) {
    return std::tie(a.piece.round, a.piece.reader, a.object, a.piece.begin) <
           std::tie(b.piece.round, b.piece.reader, b.object, b.piece.begin);
  });
  std::string pieces;
  for (size_t i = 0; i < copies_.size();) {
    if (IsWhole(copies_[i])) {
      i = WriteRun(i, objects);
    } else {
      WritePiece(copies_[i++], pieces);
    }
  }
  std::string field;
  WireWriter(field).Bytes(v1::ReadPlan::kSharedObjectsFieldNumber, objects + pieces);
  return field;
}

}  // namespace cairn
