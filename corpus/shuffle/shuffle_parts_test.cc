#include "corpus/shuffle/shuffle_parts.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/resources/testing/address_space.h"
#include "common/status/reason.h"
#include "corpus/io/input_part.h"
#include "corpus/shuffle/line_key.h"
#include "corpus/shuffle/memory_plan.h"
#include "corpus/shuffle/placed_line.h"
#include "corpus/shuffle/shared_output.h"
#include "corpus/shuffle/shuffle.h"

namespace cairn::corpus {
namespace {

class ShufflePartsTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name), std::ios::binary) << text;
    return Path(name);
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  ShuffleOptions Options(std::vector<std::string> inputs) const {
    ShuffleOptions options;
    options.inputs = std::move(inputs);
    options.output = Path("one");
    // A sanitizer's own memory counts too.
    options.memory = uint64_t{64} << (LimitedAddressSpace::Works() ? 20 : 25);
    options.seed = 7;
    return options;
  }
  // Shuffles by parts and buckets. With a plan, each bucket goes through the disk in this way. With `shared`, the
  // buckets are written into one file, the last first.
  absl::StatusOr<ShuffleReport> ShuffleInParts(const ShuffleOptions& options, uint32_t parts, uint32_t buckets,
                                               const std::optional<MemoryPlan>& plan, bool shared = false) {
    std::vector<std::vector<std::string>> files(buckets);
    std::vector<LineMultiset> sizes(buckets);
    LineMultiset all;
    for (uint32_t number = 1; number <= parts; ++number) {
      ShuffleOptions part = options;
      part.output = Path("part" + std::to_string(number));
      const auto scattered = ScatterPart(part, {number, parts}, buckets, stop_);
      if (!scattered.ok()) return scattered.status();
      for (uint32_t i = 0; i < buckets; ++i) {
        files[i].push_back(scattered->files[i]);
        all += scattered->lines[i];
        sizes[i] += scattered->lines[i];
      }
    }
    std::vector<std::string> sorted;
    std::unique_ptr<SharedOutput> output;
    if (shared) {
      auto created = SharedOutput::Create(options, sizes, stop_);
      if (!created.ok()) return created.status();
      output = *std::move(created);
    }
    for (uint32_t j = 0; j < buckets; ++j) {
      const uint32_t i = shared ? buckets - 1 - j : j;
      ShuffleOptions bucket;
      bucket.inputs = files[i];
      bucket.output = Path("sorted" + std::to_string(i));
      if (shared) {
        bucket.output = output->path();
        bucket.at = output->OffsetOf(i);
      }
      bucket.memory = options.memory;
      bucket.seed = options.seed;
      bucket.separator = options.separator;
      bucket.placed = true;
      bucket.keys = KeysOfBucket({i + 1, buckets});
      bucket.plan = plan;
      const auto report = Shuffle(bucket, stop_, nullptr);
      if (!report.ok()) return report.status();
      if (shared) output->MarkWritten(i);
      divided_ += report->divided_buckets;
      sorted.push_back(bucket.output);
    }
    if (shared) return output->Commit();
    ShuffleProgress progress;
    return JoinBuckets(options, sorted, all, stop_, &progress);
  }

  std::string directory_;
  std::atomic<bool> stop_{false};
  uint64_t divided_ = 0;
};

std::string RandomLines(uint32_t seed, char separator, size_t longest, size_t count) {
  std::mt19937 random(seed);
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    for (auto size = random() % 20 == 0 ? random() % longest : random() % 30; size > 0; --size) {
      const char byte = static_cast<char>(random());
      text += byte == separator ? 'x' : byte;
    }
    if (i + 1 < count || seed % 2 == 0) text += separator;
  }
  return text;
}

TEST_F(ShufflePartsTest, JoinBuckets_AnyPartsAndBuckets_TheOutputIsThatOfOneShuffle) {
  int shared = 0;
  for (uint32_t seed = 0; seed < 16; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const char separator = seed % 3 == 0 ? '\xfe' : '\n';
    ShuffleOptions options = Options({Write("a", RandomLines(seed, separator, 20'000, 5000)), Write("empty", ""),
                                      Write("b", RandomLines(seed + 100, separator, 9, 50))});
    options.separator = separator;
    if (seed % 4 == 1) options.split_lines = 301;
    if (seed % 4 == 2) options.compression = Compression::kGzip;
    const auto one = Shuffle(options, stop_, nullptr);
    ASSERT_TRUE(one.ok()) << one.status();
    std::vector<std::string> expected;
    for (const std::string& path : one->outputs) expected.push_back(Read(path));
    MemoryPlan plan;  // small blocks, so that buckets are divided again, and some lines are longer than a block
    plan.readers = 2;
    plan.read_block = 4096;
    plan.block_bytes = 8192;
    plan.buckets = 2;
    plan.writer_bytes = (plan.buckets + 3) * plan.block_bytes;
    plan.sorters = 2;
    plan.sorter_bytes = 128 << 10;
    options.output = Path("many");
    const auto many = ShuffleInParts(options, 1 + seed % 5, 1 + seed % 7,
                                     seed % 2 == 0 ? std::nullopt : std::optional<MemoryPlan>(plan));
    ASSERT_TRUE(many.ok()) << many.status();
    ASSERT_EQ(many->outputs.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(Read(many->outputs[i]) == expected[i]) << i;
    EXPECT_EQ(many->lines, one->lines);
    options.output = Path("shared");
    if (!*SharedOutput::Fits(options)) continue;
    ++shared;
    const auto same = ShuffleInParts(options, 1 + seed % 5, 1 + seed % 7, std::nullopt, true);
    ASSERT_TRUE(same.ok()) << same.status();
    EXPECT_TRUE(Read(options.output) == expected[0]);
    EXPECT_EQ(same->lines, one->lines);
    EXPECT_EQ(same->output_bytes, expected[0].size());
  }
  EXPECT_GT(divided_, 0u);
  EXPECT_EQ(shared, 8);
}

TEST_F(ShufflePartsTest, SharedOutput_ABucketIsMissing_WritesNothing) {
  LineMultiset lines;
  lines.Add("one");
  auto output = SharedOutput::Create(Options({Write("a", "one\n")}), {lines, lines}, stop_);
  ASSERT_TRUE(output.ok()) << output.status();
  (*output)->MarkWritten(1);
  EXPECT_TRUE(HasReason((*output)->Commit().status(), Reason::kStorageError));
  output->reset();
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
}

TEST_F(ShufflePartsTest, SharedOutput_HeaderAndLongLines_StandBeforeTheBuckets) {
  const std::string text = "the header\nshort\n" + std::string(5 << 20, 'a') + "\nx\n" + std::string(3 << 20, 'b');
  ShuffleOptions options = Options({Write("a", text)});
  options.header_lines = 1;
  ASSERT_TRUE(Shuffle(options, stop_, nullptr).ok());
  const std::string expected = Read(options.output);
  options.output = Path("many");
  const auto many = ShuffleInParts(options, 3, 2, std::nullopt, true);
  ASSERT_TRUE(many.ok()) << many.status();
  EXPECT_TRUE(Read(options.output) == expected);
}

TEST_F(ShufflePartsTest, JoinBuckets_LinesOfManyMegabytes_StayWhole) {
  std::string text = "short\n" + std::string(5 << 20, 'a') + "\nx\n" + std::string(3 << 20, 'b');
  ShuffleOptions options = Options({Write("a", text)});
  options.split_bytes = 4 << 20;
  const auto one = Shuffle(options, stop_, nullptr);
  ASSERT_TRUE(one.ok()) << one.status();
  std::vector<std::string> expected;
  for (const std::string& path : one->outputs) expected.push_back(Read(path));
  options.output = Path("many");
  const auto many = ShuffleInParts(options, 3, 2, std::nullopt);
  ASSERT_TRUE(many.ok()) << many.status();
  ASSERT_EQ(many->outputs.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(Read(many->outputs[i]) == expected[i]) << i;
}

TEST_F(ShufflePartsTest, JoinBuckets_ABucketIsMissing_WritesNothing) {
  ShuffleOptions options = Options({Write("a", "one\ntwo\nthree\n")});
  LineMultiset lines;
  for (const char* line : {"one", "two", "three"}) lines.Add(line);
  ShuffleProgress progress;
  const auto joined = JoinBuckets(options, {Write("sorted", "two\none\n")}, lines, stop_, &progress);
  EXPECT_TRUE(HasReason(joined.status(), Reason::kChecksumMismatch)) << joined.status();
  EXPECT_FALSE(std::filesystem::exists(options.output));
}

TEST_F(ShufflePartsTest, Shuffle_APlacedInputIsNone_Fails) {
  ShuffleOptions options = Options({Write("a", "one\n")});
  options.placed = true;
  EXPECT_TRUE(HasReason(Shuffle(options, stop_, nullptr).status(), Reason::kInputUnreadable));
}

TEST(PlacedLineTest, PutPlace_AnyPlaceAndSeparator_ComesBackWithoutTheSeparator) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100'000; ++i) {
    const LinePosition place = random() >> (random() % 64);
    const char separator = static_cast<char>(random());
    char bytes[kPlaceBytes];
    PutPlace(place, separator, bytes);
    ASSERT_EQ(GetPlace(bytes), place);
    ASSERT_EQ(std::string_view(bytes, sizeof(bytes)).find(separator), std::string_view::npos);
  }
}

}  // namespace
}  // namespace cairn::corpus
