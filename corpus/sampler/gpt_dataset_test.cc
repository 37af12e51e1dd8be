#include "corpus/sampler/gpt_dataset.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "common/status/reason.h"

namespace cairn::corpus {
namespace {

constexpr uint64_t kPlenty = uint64_t{1} << 50;

SplitSize SizeOf(const std::vector<int32_t>& lengths) {
  return {0, lengths.size(), std::accumulate(lengths.begin(), lengths.end(), uint64_t{0})};
}

GptDatasetPlan Plan(const std::vector<int32_t>& lengths, std::optional<uint64_t> samples, uint32_t sequence_length) {
  return *PlanGptDataset(SizeOf(lengths), samples, sequence_length, kPlenty);
}

// By the arithmetic of GPTDataset._build_document_sample_shuffle_indices: 1,000 tokens have 99 samples of 10, and a
// last epoch that serves less than int(0.8 * 99) = 79 of them is separate.
TEST(GptDatasetTest, Plan_LastEpochServesFewSamples_IsSeparate) {
  const std::vector<int32_t> lengths = {400, 0, 600};
  const GptDatasetPlan one = Plan(lengths, 99, 10);
  EXPECT_EQ(one.epochs, 1u);
  EXPECT_EQ(one.samples, 99u);
  EXPECT_FALSE(one.last_epoch_is_separate);
  // Two epochs have 199 samples; the first alone has 99.
  for (const uint64_t samples : {100, 177, 178, 199}) {
    const GptDatasetPlan two = Plan(lengths, samples, 10);
    EXPECT_EQ(two.epochs, 2u);
    EXPECT_EQ(two.samples, 199u);
    EXPECT_EQ(two.last_epoch_is_separate, samples - 99 < 79) << samples;
    EXPECT_EQ(two.samples_shuffled_first, two.last_epoch_is_separate ? 99u : 199u);
  }
  EXPECT_EQ(Plan(lengths, std::nullopt, 10).samples, 99u);
}

// Indices of such a size are too large for a test to build, so at least their headers are looked at.
TEST(GptDatasetTest, Headers_NumbersPass32Bits_AreWider) {
  const std::vector<int32_t> short_documents(1000, 1);
  EXPECT_EQ(Plan(short_documents, 1000, 2).Headers().at("sample_index").descr, "<i4");
  EXPECT_EQ(Plan(short_documents, uint64_t{1} << 30, 2).Headers().at("sample_index").descr, "<i8");

  const std::vector<int32_t> long_document = {2'000'000'000};
  for (const auto& [samples, descr] : {std::pair(uint64_t{1000}, "<u4"), std::pair(uint64_t{4'900'000'000}, "<i8")}) {
    const GptDatasetPlan plan = Plan(long_document, samples, 2);
    EXPECT_EQ(plan.Headers().at("shuffle_index").descr, descr);
    EXPECT_EQ(plan.Headers().at("shuffle_index").shape, std::vector<uint64_t>{plan.samples});
  }
}

TEST(GptDatasetTest, Plan_WhatCannotBe_IsRefused) {
  const auto reason = [](const std::vector<int32_t>& lengths, uint64_t samples, uint64_t memory) {
    return ReasonOf(PlanGptDataset(SizeOf(lengths), samples, 2048, memory).status());
  };
  EXPECT_EQ(reason({}, 1, kPlenty), Reason::kBadRequest);
  EXPECT_EQ(reason({0, 1, 0}, 1, kPlenty), Reason::kBadRequest);
  EXPECT_EQ(reason({5000}, UINT64_MAX / 2048 + 2, kPlenty), Reason::kBadRequest) << "the product would pass 64 bits";
  EXPECT_EQ(reason({2}, uint64_t{1} << 50, kPlenty), Reason::kMemoryLimit);
  EXPECT_EQ(reason({5000}, 100'000'000, uint64_t{64} << 20), Reason::kMemoryLimit);
  EXPECT_EQ(reason({5000}, 1, uint64_t{64} << 20), std::nullopt);
}

}  // namespace
}  // namespace cairn::corpus
