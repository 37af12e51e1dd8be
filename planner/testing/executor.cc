#include "planner/testing/executor.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "cairn/v1/plan.pb.h"
#include "common/base/crc32c.h"
#include "common/base/digest.h"
#include "common/format/safetensors_header.h"
#include "common/rpc/plan_part.h"
#include "common/tensor/testing/float_codec.h"
#include "planner/testing/model.h"

namespace cairn::testing {
namespace {

struct ShardRef {
  const TensorDescription* tensor;
  const ShardDescription* shard;
};

std::vector<ShardRef> ShardsOf(const LayoutDescription& layout) {
  std::vector<ShardRef> shards;
  for (const TensorDescription& tensor : layout.tensors) {
    for (const ShardDescription& shard : tensor.shards) shards.push_back({&tensor, &shard});
  }
  return shards;
}

StoredItem ItemOf(const ShardRef& ref) {
  return {ref.tensor->name, ref.tensor->dtype, ref.tensor->global_shape, ref.shard->box, ref.shard->flat, false, {}};
}

Shape ToShape(const google::protobuf::RepeatedField<int64_t>& dims) { return Shape(dims.begin(), dims.end()); }

}  // namespace

std::vector<RankMemory> MakeRanks(const std::map<std::string, Bytes>& contents,
                                  const std::vector<LayoutDescription>& layouts, bool fill) {
  std::vector<RankMemory> ranks;
  for (size_t r = 0; r < layouts.size(); ++r) {
    RankMemory& rank = ranks.emplace_back();
    rank.layout = layouts[r];
    rank.serialized = SerializeLayout(layouts[r]);
    rank.digest = Digest(rank.serialized);
    for (const TensorDescription& tensor : layouts[r].tensors) {
      for (const ShardDescription& shard : tensor.shards) {
        Bytes bytes = ContentOf(shard, tensor.global_shape, BytesOf(tensor.dtype), contents.at(tensor.name));
        if (!fill) std::fill(bytes.begin(), bytes.end(), std::byte{0x55});
        rank.shards.push_back(std::move(bytes));
      }
    }
    if (!fill) continue;
    for (const ObjectDescription& object : layouts[r].objects) {
      const std::string text = object.per_rank ? absl::StrCat(object.name, " of rank ", r) : object.name;
      Bytes bytes(text.size());
      std::memcpy(bytes.data(), text.data(), text.size());
      rank.objects[object.name] = bytes;
    }
  }
  return ranks;
}

std::vector<RankInput> InputsOf(const std::vector<RankMemory>& ranks) {
  std::vector<RankInput> inputs;
  for (size_t r = 0; r < ranks.size(); ++r) {
    inputs.push_back({static_cast<int>(r), absl::StrCat("node", r / 4), ranks[r].serialized, ranks[r].digest});
  }
  return inputs;
}

std::string ExecuteSave(const SavePlan& plan, const std::vector<RankMemory>& ranks, Storage& storage,
                        std::vector<RankResult>& results, const std::function<void(int, std::string&)>& mutate) {
  std::vector<v1::WritePlan> parts(ranks.size());
  for (size_t r = 0; r < ranks.size(); ++r) {
    std::string bytes = plan.PartFor(static_cast<int>(r));
    if (mutate) mutate(static_cast<int>(r), bytes);
    if (!parts[r].ParseFromString(bytes)) return absl::StrCat("the part of rank ", r, " does not parse");
    if (parts[r].plan_digest() != plan.digest() || parts[r].layout_digest() != ranks[r].digest ||
        parts[r].rank() != r) {
      return absl::StrCat("the part of rank ", r, " has another identity");
    }
  }
  uint64_t total = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const std::vector<ShardRef> shards = ShardsOf(ranks[r].layout);
    RankResult& result = results.emplace_back();
    result.rank = static_cast<int>(r);
    for (const v1::PlannedFile& file : parts[r].files()) {
      std::vector<StoredItem> items;
      std::vector<ItemChecksums> checksums;
      std::set<std::string> names;
      Bytes data;
      v1::FileResult& out = *result.result.add_files();
      for (uint32_t number : file.items()) {
        StoredItem item;
        Bytes bytes;
        ItemChecksums sums;
        if (number < shards.size()) {
          item = ItemOf(shards[number]);
          bytes = ranks[r].shards[number];
        } else if (number < shards.size() + ranks[r].layout.objects.size()) {
          const ObjectDescription& object = ranks[r].layout.objects[number - shards.size()];
          const auto slot = static_cast<int64_t>(object.slot_bytes);
          item = {object.name, DType::kUint8, {slot}, {{0}, {slot}}, {}, true, {}};
          if (object.per_rank) item.object_rank = static_cast<int>(r);
          bytes = ranks[r].objects.at(object.name);
          sums.object_bytes = bytes.size();
          out.add_object_sizes(bytes.size());
          bytes.resize(object.slot_bytes);
        } else {
          const auto k = static_cast<int>(number - shards.size() - ranks[r].layout.objects.size());
          if (k >= parts[r].incoming_shards_size())
            return absl::StrCat("item ", number, " of rank ", r, " does not exist");
          const v1::MovedShard& moved = parts[r].incoming_shards(k);
          item = {moved.name(),
                  *DTypeFromNumber(moved.dtype()),
                  ToShape(moved.global_shape()),
                  {ToShape(moved.offset()), ToShape(moved.shape())},
                  {},
                  false,
                  {}};
          if (moved.flat()) item.flat = FlatRange{moved.flat_begin(), moved.flat_end()};
          bool sent = false;
          const std::vector<ShardRef> others = ShardsOf(ranks[moved.from_rank()].layout);
          for (const v1::MovedOut& out_item : parts[moved.from_rank()].outgoing_shards()) {
            const ShardRef& ref = others[out_item.shard()];
            if (out_item.to_rank() != r || ref.tensor->name != item.name || ref.shard->box != item.box ||
                ref.shard->flat != item.flat) {
              continue;
            }
            sent = true;
            bytes = ranks[moved.from_rank()].shards[out_item.shard()];
          }
          if (!sent) return absl::StrCat("rank ", moved.from_rank(), " does not send ", item.name, " to rank ", r);
        }
        if (!names.insert(item.stored_name()).second) return absl::StrCat(item.stored_name(), " twice in a file");
        if (bytes.size() != item.bytes()) return absl::StrCat(item.name, " has another size");
        sums.crc32c = Crc32c(bytes.data(), bytes.size());
        sums.blocks.assign(ChecksumBlockCount(bytes.size()), sums.crc32c);
        out.add_item_checksums(sums.crc32c);
        data.insert(data.end(), bytes.begin(), bytes.end());
        items.push_back(std::move(item));
        checksums.push_back(std::move(sums));
      }
      const bool is_first = &file == &parts[r].files(0);
      const std::string header = RenderHeader(items, checksums, {}, is_first ? ranks[r].layout.aliases : AliasList{});
      if (header.size() != file.header_bytes()) return absl::StrCat(file.name(), ": header ", header.size(), " bytes");
      if (data.size() != file.data_bytes()) return absl::StrCat(file.name(), ": data ", data.size(), " bytes");
      Bytes whole(header.size());
      std::memcpy(whole.data(), header.data(), header.size());
      whole.insert(whole.end(), data.begin(), data.end());
      out.set_header_crc32c(Crc32c(header.data(), header.size()));
      out.set_file_bytes(whole.size());
      total += whole.size();
      const std::string path = absl::StrCat("000000000007/0001/", file.name(), ".safetensors");
      if (!storage.files.emplace(path, std::move(whole)).second) return absl::StrCat(path, " is written twice");
    }
  }
  if (total != plan.total_bytes()) return absl::StrCat("total_bytes says ", plan.total_bytes(), ", written ", total);
  return "";
}

namespace {

std::string RunReads(const v1::ReadPlan& part, const Storage& storage, uint64_t round_bytes,
                     std::map<std::string, std::vector<uint8_t>>& touched, std::vector<Bytes>& rounds) {
  for (const v1::ReadRound& round : part.rounds()) {
    Bytes buffer(round.buffer_bytes(), std::byte{0xee});
    if (buffer.size() > round_bytes) return absl::StrCat("a round of ", buffer.size(), " bytes");
    std::map<uint64_t, uint64_t> regions;
    for (const v1::Read& read : round.reads()) {
      if (read.file() >= static_cast<uint32_t>(part.files_size())) return "a read of no file";
      const v1::ReadFile& file = part.files(static_cast<int>(read.file()));
      const auto found = storage.files.find(file.path());
      if (found == storage.files.end()) return absl::StrCat("no file ", file.path());
      if (file.file_bytes() != found->second.size()) return "another file length";
      if (read.file_offset() + read.bytes() > found->second.size()) return "a read behind the end";
      if (read.bytes() == 0) return "an empty read";
      if (read.file_offset() % 4096 != read.buffer_offset() % 4096) return "a read that is not aligned";
      if (read.buffer_offset() + read.bytes() > buffer.size()) return "a read outside the buffer";
      std::memcpy(buffer.data() + read.buffer_offset(), found->second.data() + read.file_offset(), read.bytes());
      regions[read.buffer_offset()] = read.buffer_offset() + read.bytes();
      std::vector<uint8_t>& counts = touched[file.path()];
      counts.resize(found->second.size());
      for (uint64_t i = 0; i < read.bytes(); ++i) {
        if (++counts[read.file_offset() + i] > 1) return absl::StrCat("a byte of ", file.path(), " is read twice");
      }
      // The plan must list every item that a read touches, and a read that ends inside an item must end at a block.
      uint64_t covered = 0;
      for (int i = 0; i < file.item_offsets_size(); ++i) {
        const uint64_t begin = std::max(file.item_offsets(i), read.file_offset());
        const uint64_t end = std::min(file.item_offsets(i) + file.item_sizes(i), read.file_offset() + read.bytes());
        if (begin < end) covered += end - begin;
      }
      if (covered != read.bytes()) return "a read of bytes that are no listed item's";
    }
    uint64_t page = 0;
    for (const auto& [begin, end] : regions) {
      if (page != 0 && begin / 4096 < page) return "two reads share a page";
      page = (end + 4095) / 4096;
    }
    rounds.push_back(std::move(buffer));
  }
  return "";
}

}  // namespace

std::string ExecuteLoad(const LoadPlan& plan, const Manifest& manifest, const Storage& storage, uint64_t round_bytes,
                        std::vector<RankMemory>& targets, const std::function<void(int, std::string&)>& mutate) {
  std::vector<v1::ReadPlan> parts(targets.size());
  std::vector<std::vector<Bytes>> rounds(targets.size());
  std::map<std::string, std::vector<uint8_t>> touched;
  uint64_t read_bytes = 0;
  for (size_t r = 0; r < targets.size(); ++r) {
    std::string bytes = plan.PartFor(static_cast<int>(r));
    if (mutate) mutate(static_cast<int>(r), bytes);
    auto parsed = ParseReadPlan(bytes);
    if (!parsed.ok()) return absl::StrCat("rank ", r, ": ", parsed.status().message());
    parts[r] = *std::move(parsed);
    if (parts[r].layout_digest() != targets[r].digest || parts[r].rank() != r) return "another identity";
    if (std::string error = RunReads(parts[r], storage, round_bytes, touched, rounds[r]); !error.empty()) {
      return absl::StrCat("rank ", r, ": ", error);
    }
    uint64_t own = 0;
    for (const v1::ReadRound& round : parts[r].rounds()) {
      for (const v1::Read& read : round.reads()) own += read.bytes();
    }
    if (own != parts[r].read_bytes()) return "read_bytes is not the sum of the reads";
    read_bytes += own;
  }
  if (read_bytes != plan.unique_bytes()) {
    return absl::StrCat("read ", read_bytes, ", planned ", plan.unique_bytes());
  }
  // This records which bytes of which buffer were taken: a byte that nobody takes was read in vain.
  std::map<std::pair<uint32_t, uint32_t>, std::vector<uint8_t>> taken;
  std::map<std::pair<uint32_t, uint32_t>, std::set<uint32_t>> consumers;
  for (size_t r = 0; r < targets.size(); ++r) {
    std::vector<Bytes*> memory;
    for (Bytes& shard : targets[r].shards) memory.push_back(&shard);
    std::vector<Bytes> objects;
    objects.reserve(static_cast<size_t>(parts[r].objects_size()));
    for (const v1::ReadObject& object : parts[r].objects()) {
      objects.emplace_back(object.bytes());
    }
    for (Bytes& object : objects) memory.push_back(&object);
    std::pair<uint32_t, uint32_t> last = {0, 0};
    for (const v1::Copy& copy : parts[r].copies()) {
      const std::pair<uint32_t, uint32_t> key = {copy.round(), copy.source_rank()};
      if (key < last) return "copies are not ordered by (round, source rank)";
      last = key;
      if (copy.source_rank() >= targets.size() || copy.round() >= rounds[copy.source_rank()].size()) {
        return "a copy from no round";
      }
      if (copy.target() >= memory.size()) return "a copy to no target";
      if (copy.extents_size() != copy.source_strides_size() || copy.extents_size() != copy.target_strides_size()) {
        return "a copy with ragged strides";
      }
      const Bytes& from = rounds[copy.source_rank()][copy.round()];
      Bytes& to = *memory[copy.target()];
      std::vector<uint8_t>& marks = taken[{copy.source_rank(), copy.round()}];
      marks.resize(from.size());
      consumers[{copy.source_rank(), copy.round()}].insert(static_cast<uint32_t>(r));
      std::vector<int64_t> index(static_cast<size_t>(copy.extents_size()), 0);
      while (true) {
        uint64_t a = copy.source_offset(), b = copy.target_offset();
        for (int d = 0; d < copy.extents_size(); ++d) {
          a += static_cast<uint64_t>(index[static_cast<size_t>(d)] * copy.source_strides(d));
          b += static_cast<uint64_t>(index[static_cast<size_t>(d)] * copy.target_strides(d));
        }
        const uint64_t written = copy.casts_size() > 0
                                     ? static_cast<uint64_t>(BytesOf(static_cast<DType>(*copy.casts().rbegin())))
                                     : copy.element_bytes();
        if (a + copy.element_bytes() > from.size() || b + written > to.size()) {
          return absl::StrCat("a copy outside its memory: ", copy.ShortDebugString());
        }
        if (copy.casts_size() > 0) {
          if (copy.casts_size() < 2) return "a cast from nothing";
          if (copy.element_bytes() != static_cast<uint64_t>(BytesOf(static_cast<DType>(copy.casts(0))))) {
            return "a cast of more than one element";
          }
          double value = Decode(from.data() + a, static_cast<DType>(copy.casts(0)));
          for (int k = 1; k < copy.casts_size(); ++k) value = RoundTo(value, static_cast<DType>(copy.casts(k)));
          Encode(value, static_cast<DType>(*copy.casts().rbegin()), to.data() + b);
        } else {
          std::memcpy(to.data() + b, from.data() + a, copy.element_bytes());
        }
        std::fill_n(marks.begin() + static_cast<std::ptrdiff_t>(a), copy.element_bytes(), uint8_t{1});
        int d = copy.extents_size();
        while (d > 0 && ++index[static_cast<size_t>(d - 1)] == copy.extents(d - 1)) index[static_cast<size_t>(--d)] = 0;
        if (d == 0) break;
      }
    }
    for (size_t i = 0; i < objects.size(); ++i) {
      const v1::ReadObject& object = parts[r].objects(static_cast<int>(i));
      const std::string name = object.per_rank() ? absl::StrCat(object.name(), "#", object.rank()) : object.name();
      targets[r].objects[name] = std::move(objects[i]);
    }
  }
  for (size_t r = 0; r < targets.size(); ++r) {
    for (int i = 0; i < parts[r].rounds_size(); ++i) {
      const v1::ReadRound& round = parts[r].rounds(i);
      const std::pair key(static_cast<uint32_t>(r), static_cast<uint32_t>(i));
      const std::set<uint32_t> listed(round.consumers().begin(), round.consumers().end());
      if (!std::is_sorted(round.consumers().begin(), round.consumers().end()) || listed != consumers[key]) {
        return "a round's consumers are not those that copy from it";
      }
      for (const v1::Read& read : round.reads()) {
        for (uint64_t k = 0; k < read.bytes(); ++k) {
          if (!taken[key][read.buffer_offset() + k]) return "a byte was read that nobody needs";
        }
      }
    }
  }
  (void)manifest;
  return "";
}

}  // namespace cairn::testing
