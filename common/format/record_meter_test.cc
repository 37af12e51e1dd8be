#include "common/format/record_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "cairn/v1/manifest.pb.h"

namespace cairn {
namespace {

RecordMeter OfOutcomes() { return RecordMeter(*v1::OutcomeRecord::descriptor()); }

uint64_t MemoryOf(const std::string& bytes) {
  RecordMeter meter = OfOutcomes();
  EXPECT_TRUE(meter.Add(bytes));
  return meter.memory();
}

// Fills every kind of column with `count` entries.
v1::OutcomeRecord RecordOf(int count) {
  v1::OutcomeRecord record;
  v1::ManifestRecord& manifest = *record.mutable_manifest();
  manifest.set_job("demo");
  manifest.set_step(1 << 20);
  manifest.set_line(7);
  for (int i = 0; i < count; ++i) {
    manifest.add_tensor_names(std::string(static_cast<size_t>(i % 40), 'n'));
    manifest.add_tensor_dims(int64_t{i} << 20);
    manifest.add_shard_offset_deltas(-i);
    manifest.add_shard_checksums(static_cast<uint32_t>(i));
    manifest.add_metric_values(i);
  }
  return record;
}

TEST(RecordMeterTest, Memory_RecordsOfManyEntries_IsAboveWhatTheMessageTakes) {
  for (const int count : {0, 1, 1000, 100'000}) {
    const v1::OutcomeRecord record = RecordOf(count);
    v1::OutcomeRecord parsed;
    const std::string bytes = record.SerializeAsString();
    ASSERT_TRUE(parsed.ParseFromString(bytes));
    EXPECT_GE(MemoryOf(bytes), parsed.SpaceUsedLong()) << count;
    EXPECT_LE(MemoryOf(bytes), 8 * parsed.SpaceUsedLong() + 2048) << count;
  }
}

TEST(RecordMeterTest, Memory_WhatTakesMuchMoreThanItsBytes_IsCounted) {
  constexpr int kEntries = 10'000;
  const auto manifest_of = [](const std::string& fields) {
    std::string bytes(1, '\x0a');  // field 1, a message
    uint64_t size = fields.size();
    for (; size > 127; size >>= 7) bytes += static_cast<char>(size | 0x80);
    return bytes + static_cast<char>(size) + fields;
  };
  std::string empty_texts, unknown_numbers, unknown_texts, loose_numbers;
  for (int i = 0; i < kEntries; ++i) {
    empty_texts += std::string("\xa2\x01\x00", 3);      // tensor_names
    unknown_numbers += std::string("\xb8\x3e\x01", 3);  // field 999
    unknown_texts += std::string("\xba\x3e\x00", 3);
    loose_numbers += std::string("\xb8\x01\x01", 3);  // tensor_dims (23), each by itself
  }
  for (const std::string& fields : {empty_texts, unknown_numbers, unknown_texts, loose_numbers}) {
    const std::string bytes = manifest_of(fields);
    v1::OutcomeRecord parsed;
    ASSERT_TRUE(parsed.ParseFromString(bytes));
    EXPECT_GE(MemoryOf(bytes), parsed.SpaceUsedLong());
    EXPECT_GE(MemoryOf(bytes), kEntries * 16u);
  }
}

TEST(RecordMeterTest, Add_AnyCutIntoPieces_GivesTheSame) {
  const std::string bytes = RecordOf(300).SerializeAsString();
  const uint64_t whole = MemoryOf(bytes);
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    RecordMeter meter = OfOutcomes();
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = std::min<size_t>(bytes.size() - at, 1 + random() % (round < 20 ? 1 : 400));
      ASSERT_TRUE(meter.Add(std::string_view(bytes).substr(at, size)));
      at += size;
    }
    ASSERT_EQ(meter.memory(), whole);
  }
}

TEST(RecordMeterTest, Add_WhatIsNoMessage_IsRefused) {
  for (const std::string& bytes : {
           std::string("\x00", 1),                  // field 0
           std::string("\x0b", 1),                  // a group
           std::string("\x0a\x02\xa2\x01\x00", 5),  // a field that reaches out of its message
           std::string("\x0a\x01\x80", 3),          // a tag that does
           std::string("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12),  // a number of more than 64 bits
       }) {
    RecordMeter meter = OfOutcomes();
    EXPECT_FALSE(meter.Add(bytes + bytes)) << bytes;
    EXPECT_FALSE(meter.Add("more"));
  }
}

TEST(RecordMeterTest, Add_FlippedBits_RefusesNothingThatProtobufParses) {
  const std::string bytes = RecordOf(20).SerializeAsString();
  for (size_t i = 0; i < bytes.size() * 8; ++i) {
    std::string flipped = bytes;
    flipped[i / 8] = static_cast<char>(flipped[i / 8] ^ 1 << i % 8);
    RecordMeter meter = OfOutcomes();
    const bool taken = meter.Add(flipped);
    v1::OutcomeRecord parsed;
    if (parsed.ParseFromString(flipped)) {
      EXPECT_TRUE(taken) << i;
    }
  }
}

}  // namespace
}  // namespace cairn
