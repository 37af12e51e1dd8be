#include "agent/testing/layouts.h"

#include <cstdlib>
#include <iostream>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cairn/v1/layout.pb.h"
#include "common/base/digest.h"
#include "common/format/checkpoint_path.h"
#include "common/format/safetensors_header.h"

namespace cairn::testing {

std::string SerializeLayout(const std::vector<StoredItem>& shards, const std::vector<StoredItem>& objects) {
  v1::TensorSchema schema;
  std::map<std::string, int> tensors;
  for (const StoredItem& shard : shards) {
    if (!tensors.emplace(shard.name, schema.names_size()).second) continue;
    schema.add_names(shard.name);
    schema.add_dtypes(static_cast<v1::DType>(shard.dtype));
    schema.add_ndims(static_cast<uint32_t>(shard.global_shape.size()));
    for (int64_t dim : shard.global_shape) schema.add_global_dims(dim);
  }
  v1::Layout layout;
  layout.set_tensor_schema(schema.SerializeAsString());
  for (size_t i = 0; i < shards.size(); ++i) {
    const StoredItem& shard = shards[i];
    layout.add_shard_tensors(static_cast<uint32_t>(tensors.at(shard.name)));
    for (int64_t value : shard.box.offset) layout.add_shard_offsets(value);
    for (int64_t value : shard.box.shape) layout.add_shard_shapes(value);
    if (!shard.flat) continue;
    layout.add_flat_shards(static_cast<uint32_t>(i));
    layout.add_flat_begins(shard.flat->begin);
    layout.add_flat_ends(shard.flat->end);
  }
  for (const StoredItem& object : objects) {
    auto* declared = layout.add_objects();
    declared->set_name(object.name);
    declared->set_slot_bytes(object.bytes());
    declared->set_per_rank(object.object_rank.has_value());
  }
  return layout.SerializeAsString();
}

RankLayoutPtr MakeLayout(const std::vector<StoredItem>& shards, const std::vector<StoredItem>& objects, uint32_t rank) {
  const std::string bytes = SerializeLayout(shards, objects);
  auto layout = ParseRankLayout(Digest(bytes), bytes, rank);
  if (!layout.ok()) {
    std::cerr << layout.status() << "\n";
    std::abort();
  }
  return *layout;
}

StoredItem Tensor(std::string name, DType dtype, Shape global_shape, Shape offset, Shape shape) {
  return {.name = std::move(name),
          .dtype = dtype,
          .global_shape = std::move(global_shape),
          .box = {std::move(offset), std::move(shape)}};
}

StoredItem Whole(std::string name, DType dtype, Shape shape) {
  return {.name = std::move(name), .dtype = dtype, .global_shape = shape, .box = WholeBox(shape)};
}

StoredItem Object(std::string name, int64_t slot_bytes) {
  StoredItem item = Whole(std::move(name), DType::kUint8, {slot_bytes});
  item.object = true;
  return item;
}

v1::WritePlan MakeWritePlan(const RankLayout& layout, uint32_t rank, const std::vector<std::vector<uint32_t>>& files,
                            const std::string& plan_digest) {
  return MakeMovingPlan(layout, rank, files, plan_digest, {}, {});
}

v1::WritePlan MakeMovingPlan(const RankLayout& layout, uint32_t rank, const std::vector<std::vector<uint32_t>>& files,
                             const std::string& plan_digest, const std::vector<MovedInShard>& moved,
                             const std::vector<std::pair<uint32_t, uint32_t>>& out) {
  v1::WritePlan plan;
  for (const MovedInShard& one : moved) {
    v1::MovedShard& shard = *plan.add_incoming_shards();
    shard.set_from_rank(one.from_rank);
    shard.set_from_shard(one.from_shard);
    shard.set_name(one.item.name);
    shard.set_dtype(static_cast<v1::DType>(one.item.dtype));
    shard.mutable_global_shape()->Assign(one.item.global_shape.begin(), one.item.global_shape.end());
    shard.mutable_offset()->Assign(one.item.box.offset.begin(), one.item.box.offset.end());
    shard.mutable_shape()->Assign(one.item.box.shape.begin(), one.item.box.shape.end());
    if (!one.item.flat) continue;
    shard.set_flat(true);
    shard.set_flat_begin(one.item.flat->begin);
    shard.set_flat_end(one.item.flat->end);
  }
  for (const auto& [shard, to] : out) {
    v1::MovedOut& one = *plan.add_outgoing_shards();
    one.set_shard(shard);
    one.set_to_rank(to);
  }
  plan.set_plan_digest(plan_digest);
  plan.set_layout_digest(layout.digest);
  plan.set_rank(rank);
  for (size_t bin = 0; bin < files.size(); ++bin) {
    auto* file = plan.add_files();
    file->set_name(BinName(static_cast<int>(rank), static_cast<int>(bin)));
    HeaderSizer sizer;
    uint64_t data = 0;
    for (uint32_t item : files[bin]) {
      const StoredItem& stored =
          item < layout.items.size() ? layout.items[item] : moved[item - layout.items.size()].item;
      sizer.Add(stored);
      data += stored.bytes();
      file->add_items(item);
    }
    file->set_header_bytes(sizer.PaddedBytes());
    file->set_data_bytes(data);
  }
  return plan;
}

uint32_t SlowCrc32c(const std::string& bytes) {
  uint32_t crc = ~uint32_t{0};
  for (char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

std::string Pattern(const std::string& name, uint64_t bytes) {
  std::string text(bytes, '\0');
  uint64_t state = 0x9e3779b97f4a7c15;
  for (char c : name) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  for (uint64_t i = 0; i < bytes; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    text[i] = static_cast<char>(state >> 56);
  }
  return text;
}

}  // namespace cairn::testing
