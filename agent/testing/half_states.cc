#include "agent/testing/half_states.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "agent/testing/layouts.h"
#include "common/format/checkpoint_path.h"

namespace cairn::testing {

RankLayoutPtr HalfLayout(uint32_t rank) {
  const int64_t half = rank;
  return MakeLayout({Tensor("a.rows", DType::kFloat32, {8, 1000}, {4 * half, 0}, {4, 1000}),
                     Tensor("b.big", DType::kFloat32, {700, 1024}, {350 * half, 0}, {350, 1024}),
                     Tensor("c.cols", DType::kFloat32, {64, 64}, {0, 32 * half}, {64, 32})},
                    {}, rank);
}

RankLayoutPtr WholeLayout() {
  return MakeLayout({Whole("a.rows", DType::kFloat32, {8, 1000}), Whole("b.big", DType::kFloat32, {700, 1024}),
                     Whole("c.cols", DType::kFloat32, {64, 64})},
                    {});
}

v1::ReadPlan HalfReadPlan(uint32_t rank, const v1::FileResult& written, std::vector<uint64_t> cuts) {
  const RankLayoutPtr source = HalfLayout(0);  // both halves have equal sizes
  const uint32_t order[] = {1, 0, 2};
  v1::ReadPlan plan;
  plan.set_plan_digest("load-plan");
  plan.set_layout_digest(WholeLayout()->digest);
  plan.set_rank(rank);
  const uint64_t data = source->items[0].bytes() + source->items[1].bytes() + source->items[2].bytes();
  const uint64_t header = written.file_bytes() - data;
  auto* file = plan.add_files();
  file->set_path("000000000007/0001/" + BinName(static_cast<int>(rank), 0) + ".safetensors");
  file->set_header_bytes(header);
  file->set_file_bytes(written.file_bytes());
  file->set_header_crc32c(written.header_crc32c());
  uint64_t begin = header;
  std::map<uint32_t, uint64_t> begins;
  for (int i = 0; i < 3; ++i) {
    const StoredItem& item = source->items[order[i]];
    file->add_item_offsets(begin);
    file->add_item_sizes(item.bytes());
    file->add_item_checksums(written.item_checksums(i));
    file->add_item_names(item.name);
    begins[order[i]] = begin;
    begin += item.bytes();
  }
  cuts.push_back(data);
  for (size_t r = 0; r + 1 < cuts.size(); ++r) {
    auto* round = plan.add_rounds();
    auto* read = round->add_reads();
    read->set_file_offset(header + cuts[r]);
    read->set_bytes(cuts[r + 1] - cuts[r]);
    read->set_buffer_offset(read->file_offset() % 4096);
    round->set_buffer_bytes(read->buffer_offset() + read->bytes());
    round->add_consumers(0);
    round->add_consumers(1);
    plan.set_read_bytes(plan.read_bytes() + read->bytes());
    for (uint32_t number : order) {
      const uint64_t item_bytes = source->items[number].bytes();
      const uint64_t from = std::max(begins[number], read->file_offset());
      const uint64_t until = std::min(begins[number] + item_bytes, read->file_offset() + read->bytes());
      if (from >= until) continue;
      for (uint32_t from_rank = 0; from_rank < 2; ++from_rank) {
        auto* copy = plan.add_copies();
        copy->set_source_rank(from_rank);
        copy->set_round(static_cast<uint32_t>(r));
        copy->set_source_offset(read->buffer_offset() + from - read->file_offset());
        copy->set_target(number);
        if (number == 2) {
          copy->set_target_offset(from_rank * 128);
          copy->set_element_bytes(128);
          copy->add_extents(64);
          copy->add_source_strides(128);
          copy->add_target_strides(256);
        } else {
          copy->set_target_offset(from_rank * item_bytes + from - begins[number]);
          copy->set_element_bytes(until - from);
        }
      }
    }
  }
  return plan;
}

void ExpectWhole(const std::vector<std::string>& target) {
  const RankLayoutPtr layout = WholeLayout();
  for (size_t t = 0; t < layout->items.size(); ++t) {
    std::string expected(layout->items[t].bytes(), '\0');
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const StoredItem half = HalfLayout(rank)->items[t];
      const std::string bytes = Pattern(std::to_string(rank) + half.name, half.bytes());
      const size_t rows = static_cast<size_t>(half.box.shape[0]), row = bytes.size() / rows;
      for (size_t i = 0; i < rows; ++i) {
        const size_t to = t == 2 ? i * 256 + rank * 128 : (rank * rows + i) * row;
        expected.replace(to, row, bytes, i * row, row);
      }
    }
    EXPECT_TRUE(target[t] == expected) << layout->items[t].name;
  }
}

}  // namespace cairn::testing
