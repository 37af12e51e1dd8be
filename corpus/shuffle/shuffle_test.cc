#include "corpus/shuffle/shuffle.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/resources/testing/address_space.h"
#include "common/status/reason.h"
#include "corpus/io/testing/killed_at_name.h"
#include "corpus/io/testing/memory_stores.h"
#include "corpus/shuffle/bucket_sorter.h"
#include "corpus/shuffle/line_key.h"

namespace cairn::corpus {
namespace {

constexpr int kNoLimit = std::numeric_limits<int>::max();
std::atomic<int> writes_left = kNoLimit;  // then the disk is full

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void WriteAll(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Makes small blocks and little memory, so that a few lines go through the disk. A `sorter` below a bucket's size
// divides the bucket again.
MemoryPlan TinyPlan(uint32_t buckets, int readers = 1, size_t sorter = 128 << 10) {
  MemoryPlan plan;
  plan.readers = readers;
  plan.read_block = 4096;
  plan.block_bytes = 8192;
  plan.buckets = buckets;
  plan.writer_bytes = (buckets + 3) * plan.block_bytes;
  plan.sorters = 2;
  plan.sorter_bytes = sorter;
  return plan;
}

class ShuffleTest : public testing::Test {
 protected:
  void SetUp() override { MakeDirectory(testing::TempDir()); }
  void MakeDirectory(const std::string& parent) {
    std::string name = parent + "/shuffle-XXXXXX";
    const char* const made = mkdtemp(name.data());
    ASSERT_NE(made, nullptr) << name;
    directory_ = made;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  ShuffleOptions Options(const std::string& input) const {
    ShuffleOptions options;
    options.inputs = {Path(input)};
    options.output = Path("out");
    // A sanitizer's own memory counts too.
    options.memory = uint64_t{64} << (LimitedAddressSpace::Works() ? 20 : 25);
    return options;
  }
  std::string Run(const ShuffleOptions& options) {
    const auto report = Shuffle(options, stop_, nullptr);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? ReadAll(options.output) : "";
  }
  std::string directory_;
  std::atomic<bool> stop_{false};
};

// Returns Pearson's statistic of `counts` against equal chances, as a normal deviate (Wilson and Hilferty 1931).
double Deviate(const std::vector<uint64_t>& counts) {
  double total = 0;
  for (const uint64_t count : counts) total += static_cast<double>(count);
  const double expected = total / static_cast<double>(counts.size());
  double chi = 0;
  for (const uint64_t count : counts) chi += std::pow(static_cast<double>(count) - expected, 2) / expected;
  const double k = static_cast<double>(counts.size() - 1);
  return (std::cbrt(chi / k) - (1 - 2 / (9 * k))) / std::sqrt(2 / (9 * k));
}

// Returns which of the n! orders a permutation is (Lehmer code).
size_t RankOf(const std::vector<int>& order) {
  size_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    size_t smaller = 0;
    for (size_t j = i + 1; j < order.size(); ++j) smaller += order[j] < order[i];
    rank = rank * (order.size() - i) + smaller;
  }
  return rank;
}

std::vector<uint64_t> CountOrders(int n, uint64_t rounds, const std::function<std::vector<int>(uint64_t)>& shuffle) {
  size_t orders = 1;
  for (int i = 2; i <= n; ++i) orders *= static_cast<size_t>(i);
  std::vector<uint64_t> counts(orders);
  for (uint64_t round = 0; round < rounds; ++round) ++counts[RankOf(shuffle(round))];
  return counts;
}

// Returns the order in which the keys put n lines, through buckets as in the two passes.
std::vector<int> KeyOrder(int n, uint64_t seed, uint32_t buckets) {
  LineKeyMaker maker(seed);
  std::vector<LinePosition> positions;
  for (int i = 0; i < n; ++i)
    positions.push_back(MakePosition(static_cast<uint64_t>(i % 2), static_cast<uint64_t>(9 * i)));
  std::vector<LineKey> keys(positions.size());
  maker.Make(positions, keys);
  std::vector<int> order(positions.size());
  for (int i = 0; i < n; ++i) order[static_cast<size_t>(i)] = i;
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    const auto bucket = [&](int i) { return KeyRange().BucketOf(keys[static_cast<size_t>(i)].high, buckets); };
    if (bucket(a) != bucket(b)) return bucket(a) < bucket(b);
    return SortEntry::Of(keys[static_cast<size_t>(a)], 0) < SortEntry::Of(keys[static_cast<size_t>(b)], 0);
  });
  return order;
}

// Does what bojone's shuffler does: each round takes one line of every chunk, so two lines of a chunk are never
// neighbours.
std::vector<int> BiasedOrder(int n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int> first, second, order;
  for (int i = 0; i < n; ++i) (i < n / 2 ? first : second).push_back(i);
  std::shuffle(first.begin(), first.end(), random);
  std::shuffle(second.begin(), second.end(), random);
  for (size_t i = 0; i < second.size(); ++i) {
    std::vector<int> round = {second[i]};
    if (i < first.size()) round.push_back(first[i]);
    std::shuffle(round.begin(), round.end(), random);
    order.insert(order.end(), round.begin(), round.end());
  }
  return order;
}

TEST(ShuffleLawTest, Shuffle_KeysThroughBuckets_AllOrdersEquallyLikely) {
  for (int n = 2; n <= 7; ++n) {
    const uint64_t rounds = n == 7 ? 150'000 : 30'000;
    const double deviate = Deviate(CountOrders(n, rounds, [n](uint64_t seed) { return KeyOrder(n, seed, 3); }));
    EXPECT_LT(std::abs(deviate), 4.5) << n << " lines";
  }
}

TEST(ShuffleLawTest, Shuffle_BiasedShuffler_IsRejected) {
  EXPECT_GT(Deviate(CountOrders(5, 60'000, [](uint64_t seed) { return BiasedOrder(5, seed); })), 50);
  // A small bias must be found too: here one order in twenty has its first two lines sorted.
  const auto nearly = [](uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<int> order = {0, 1, 2, 3, 4};
    std::shuffle(order.begin(), order.end(), random);
    if (random() % 20 == 0) std::sort(order.begin(), order.begin() + 2);
    return order;
  };
  EXPECT_GT(Deviate(CountOrders(5, 200'000, nearly)), 4.5);
}

// It uses a file system in memory where there is one, because every run of the machine syncs its output.
class ShuffleInMemoryTest : public ShuffleTest {
 protected:
  void SetUp() override { MakeDirectory(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : testing::TempDir()); }
};

// Tests the same law of the whole machine, through the temporary file. There are fewer rounds, because each opens
// files.
TEST_F(ShuffleInMemoryTest, Shuffle_OutOfCore_AllOrdersEquallyLikely) {
  WriteAll(Path("in"), "0\n1\n2\n3\n");
  ShuffleOptions options = Options("in");
  options.plan = TinyPlan(3);
  options.direct = false;
  const auto shuffle = [&](uint64_t seed) {
    options.seed = seed;
    std::vector<int> order;
    for (const std::string& line : Lines(Run(options))) order.push_back(line[0] - '0');
    return order;
  };
  EXPECT_LT(std::abs(Deviate(CountOrders(4, 360, shuffle))), 4.5);
}

std::string RandomText(uint32_t seed, size_t lines, size_t longest, bool last_newline) {
  std::mt19937 random(seed);
  std::string text;
  for (size_t i = 0; i < lines; ++i) {
    for (size_t left = random() % (longest + 1); left > 0; --left) {
      const char byte = static_cast<char>(random());
      text += byte == '\n' ? '\xff' : byte;
    }
    if (i + 1 < lines || last_newline) text += '\n';
  }
  return text;
}

TEST_F(ShuffleInMemoryTest, Shuffle_AnyDivisionOfTheWork_GivesOneOutputForASeed) {
  const std::string text = RandomText(1, 6000, 200, false) + "x";
  WriteAll(Path("in"), text);
  ShuffleOptions options = Options("in");
  options.seed = 42;
  const std::string expected = Run(options);
  std::vector<std::string> sorted = Lines(text), found = Lines(expected);
  EXPECT_NE(sorted, found);
  std::sort(sorted.begin(), sorted.end());
  std::sort(found.begin(), found.end());
  EXPECT_EQ(sorted, found);
  options.range_bytes = 50'000;
  for (const uint32_t buckets : {1u, 2u, 7u, 40u}) {
    for (const int readers : {1, 3}) {
      options.plan = TinyPlan(buckets, readers, buckets < 7 ? 64 << 10 : 256 << 10);
      EXPECT_TRUE(Run(options) == expected) << buckets << " buckets, " << readers << " readers";
    }
  }
  options.plan.reset();
  options.no_scratch = true;
  EXPECT_TRUE(Run(options) == expected) << "without temporary disk";
  options.seed = 43;
  EXPECT_FALSE(Run(options) == expected);
}

// Lines end just before, at and behind every boundary that there is.
TEST_F(ShuffleInMemoryTest, Shuffle_SizesAroundEveryBuffer_LoseNothing) {
  for (const size_t boundary : {size_t{4096}, size_t{8192}, BucketWriter::LongestLine(8192), size_t{50'000}}) {
    for (size_t size = boundary - 3; size <= boundary + 3; ++size) {
      const std::string text = std::string(size, 'a') + "\n" + std::string(size, 'b') + "\n\nc";
      WriteAll(Path("in"), text);
      ShuffleOptions options = Options("in");
      options.plan = TinyPlan(2, 2);
      options.range_bytes = boundary;
      std::vector<std::string> lines = Lines(Run(options));
      std::sort(lines.begin(), lines.end());
      EXPECT_EQ(lines, (std::vector<std::string>{"", std::string(size, 'a'), std::string(size, 'b'), "c"})) << size;
    }
  }
}

TEST_F(ShuffleTest, Shuffle_InterruptedAndResumed_SameOutput) {
  WriteAll(Path("in"), RandomText(3, 20'000, 100, true));
  ShuffleOptions options = Options("in");
  const std::string expected = Run(options);
  std::filesystem::remove(Path("out"));
  options.plan = TinyPlan(12);
  options.range_bytes = 20'000;
  options.resume = true;
  options.checkpoint_bytes = 30'000;
  stop_ = true;
  EXPECT_TRUE(HasReason(Shuffle(options, stop_, nullptr).status(), Reason::kInterrupted));
  EXPECT_FALSE(std::filesystem::exists(Path("out")));
  stop_ = false;
  EXPECT_TRUE(Run(options) == expected);
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) files += !entry.path().empty();
  EXPECT_EQ(files, 2u) << "in and out, no state";
}

TEST_F(ShuffleInMemoryTest, Shuffle_KilledAtEveryChangeOfAName_LeavesNoMixture) {
  WriteAll(Path("in"), RandomText(4, 500, 100, true));
  ShuffleOptions longer = Options("in"), shorter = Options("in");
  longer.split_files = 4;
  shorter.split_files = 3;
  shorter.seed = 1;
  shorter.plan = TinyPlan(3);
  shorter.resume = true;
  shorter.checkpoint_bytes = 2'000;
  const auto parts = [&] {
    std::vector<std::string> texts;
    for (const int part : {0, 1, 2, 3, 4}) {
      if (std::filesystem::exists(PartPath(Path("out"), part))) texts.push_back(ReadAll(PartPath(Path("out"), part)));
    }
    return texts;
  };
  Run(shorter);
  const std::vector<std::string> new_parts = parts();
  ASSERT_EQ(new_parts.size(), 3u);
  Run(longer);
  const std::vector<std::string> old_parts = parts();
  ASSERT_EQ(old_parts.size(), 4u);
  int change = 1;
  for (; KilledAtName(change, [&] { Run(shorter); }); ++change) {
    const std::vector<std::string> left = parts();
    const auto are_first_of = [&](const std::vector<std::string>& whole) {
      return left.size() <= whole.size() && std::equal(left.begin(), left.end(), whole.begin());
    };
    EXPECT_TRUE(are_first_of(old_parts) || are_first_of(new_parts)) << "a mixture at change " << change;
    Run(shorter);
    EXPECT_TRUE(parts() == new_parts) << "resumed after change " << change;
    Run(longer);
    ASSERT_TRUE(parts() == old_parts);
  }
  EXPECT_GT(change, 7) << "four names go and three come";
}

TEST_F(ShuffleInMemoryTest, Finish_InterruptedAmongEmptyParts_StopsAndLeavesNothing) {
  ShuffleOutputOptions options;
  options.path = Path("out");
  options.split_files = 1'000'000;
  options.stop = &stop_;
  auto output = ShuffleOutput::Create(options);
  ASSERT_TRUE(output.ok()) << output.status();
  std::thread interrupter([&] {
    const std::filesystem::path directory = directory_;
    while (std::distance(std::filesystem::directory_iterator(directory), {}) < 20) std::this_thread::yield();
    stop_ = true;
  });
  EXPECT_TRUE(HasReason((*output)->Finish(), Reason::kInterrupted));
  interrupter.join();
  output->reset();
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(ShuffleInMemoryTest, Create_PartsOfAKilledRun_AreRemovedAndThoseOfALivingRunStay) {
  ShuffleOutputOptions options;
  options.path = Path("out.txt");
  options.split_lines = 1;
  const auto hidden = [&] { return std::distance(std::filesystem::directory_iterator(directory_), {}); };
  const pid_t child = fork();
  if (child == 0) {
    const auto output = ShuffleOutput::Create(options);
    bool written = output.ok();
    for (int i = 0; i < 5; ++i) written = written && (*output)->Line("lost").ok();
    _exit(written ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_EQ(hidden(), 6) << "five parts, and the file that stands for them";
  auto output = ShuffleOutput::Create(options);
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(hidden(), 2);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE((*output)->Line("kept").ok());
  // Another run may begin meanwhile; whoever ends last has the names.
  for (const uint64_t lines : {1, 0}) {
    options.split_lines = lines;
    EXPECT_TRUE(ShuffleOutput::Create(options).ok());
  }
  ASSERT_TRUE((*output)->Commit().ok());
  output->reset();
  EXPECT_EQ(hidden(), 3) << "nothing but the parts";
  EXPECT_EQ(ReadAll(Path("out-00002.txt")), "kept\n");
}

TEST_F(ShuffleInMemoryTest, Shuffle_SystemRefusesThreadsOrMemory_IsDoneOrToldWhy) {
  if (!LimitedAddressSpace::Works()) GTEST_SKIP() << "the address space cannot be limited here";
  WriteAll(Path("in"), RandomText(6, 20'000, 100, true));
  for (const bool no_scratch : {false, true}) {
    ShuffleOptions options = Options("in");
    options.plan = TinyPlan(4, 64);
    options.plan->sorters = 64;
    options.range_bytes = 4096;
    options.threads = 64;
    options.compression = Compression::kGzip;
    options.no_scratch = no_scratch;
    const std::string expected = Run(options);
    const LimitedAddressSpace limited(uint64_t{120} << 20);  // for the region and the stacks of a few threads
    const absl::Status status = Shuffle(options, stop_, nullptr).status();
    EXPECT_TRUE(status.ok() ? ReadAll(options.output) == expected : HasReason(status, Reason::kMemoryLimit)) << status;
  }
}

TEST_F(ShuffleInMemoryTest, Shuffle_DiskGetsFull_SaysWhatIsKept) {
  WriteAll(Path("in"), RandomText(5, 500, 100, true));
  ShuffleOptions options = Options("in");
  options.plan = TinyPlan(3);
  options.range_bytes = 4096;
  options.checkpoint_bytes = 2'000;
  for (const bool resume : {false, true}) {
    options.resume = resume;
    int with_work = 0, without_work = 0;
    for (int writes = 0;; ++writes) {
      writes_left = writes;
      const absl::Status status = Shuffle(options, stop_, nullptr).status();
      writes_left = kNoLimit;
      if (status.ok()) break;
      EXPECT_TRUE(HasReason(status, Reason::kNoSpace)) << status;
      const std::string next = NextActionOf(status);
      EXPECT_THAT(next,
                  testing::AllOf(testing::HasSubstr("Free space"), testing::Not(testing::HasSubstr("cairn delete"))));
      bool kept = false;
      for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
        const std::string path = entry.path();
        if (path == Path("in")) continue;
        kept = true;
        EXPECT_THAT(next, testing::HasSubstr(path.substr(0, path.rfind(".partial")))) << "kept, but not named";
        std::filesystem::remove_all(path);
      }
      EXPECT_EQ(kept, next.find("goes on from") != next.npos) << next;
      ++(kept ? with_work : without_work);
    }
    EXPECT_GT(without_work, 0) << "nothing is kept where nothing was done";
    EXPECT_EQ(with_work > 0, resume);
    std::filesystem::remove(Path("out"));
  }
}

TEST_F(ShuffleTest, Shuffle_Errors_LeaveNothing) {
  WriteAll(Path("in"), "a\nb\n");
  ShuffleOptions options = Options("in");
  options.inputs.push_back(Path("missing"));
  options.inputs.push_back(Path("absent"));
  const absl::Status status = Shuffle(options, stop_, nullptr).status();
  EXPECT_TRUE(HasReason(status, Reason::kInputUnreadable));
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(testing::HasSubstr("missing"), testing::HasSubstr("absent")));
  options = Options("in");
  options.memory = 31 << 20;
  EXPECT_TRUE(HasReason(Shuffle(options, stop_, nullptr).status(), Reason::kMemoryLimit));
  options = Options("in");
  options.split_files = options.split_lines = 1;
  EXPECT_TRUE(HasReason(Shuffle(options, stop_, nullptr).status(), Reason::kBadRequest));
  WriteAll(Path("bad.gz"), "no gzip");
  options = Options("bad.gz");
  EXPECT_TRUE(HasReason(Shuffle(options, stop_, nullptr).status(), Reason::kInputUnreadable));
  EXPECT_FALSE(std::filesystem::exists(Path("out")));
}

TEST_F(ShuffleTest, Shuffle_OutputIsAmongTheInputs_IsRefusedAndUntouched) {
  WriteAll(Path("a.jsonl"), "1\n2\n");
  WriteAll(Path("b.jsonl"), "3\n");
  std::filesystem::create_symlink("b.jsonl", Path("link"));
  for (const std::string output : {"b.jsonl", "link"}) {
    ShuffleOptions options = Options("");  // the directory
    options.output = Path(output);
    const absl::Status status = Shuffle(options, stop_, nullptr).status();
    EXPECT_TRUE(HasReason(status, Reason::kBadRequest)) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(output + " is among the inputs"));
    EXPECT_EQ(ReadAll(Path("b.jsonl")), "3\n");
  }
  ShuffleOptions options = Options("");
  options.output = Path("new.jsonl");  // a new name beside the inputs is none of them
  EXPECT_TRUE(Shuffle(options, stop_, nullptr).ok());
  EXPECT_FALSE(Shuffle(options, stop_, nullptr).ok());
}

TEST_F(ShuffleTest, Shuffle_PartIsAmongTheInputs_IsRefusedAndUntouched) {
  std::filesystem::create_directory(Path("in"));
  WriteAll(Path("in/a-00003.jsonl"), "1\n2\n");
  std::filesystem::create_symlink(Path("in/a-00003.jsonl"), Path("link"));
  for (const std::string input : {"in", "in/../in/a-00003.jsonl", "link"}) {
    ShuffleOptions options = Options(input);
    options.output = Path("in/a.jsonl");
    options.split_lines = 1;
    const absl::Status status = Shuffle(options, stop_, nullptr).status();
    EXPECT_TRUE(HasReason(status, Reason::kBadRequest)) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("is among the inputs"));
    EXPECT_THAT(MetadataOf(status)["next"], testing::HasSubstr("Give --output another name"));
    EXPECT_EQ(ReadAll(Path("in/a-00003.jsonl")), "1\n2\n");
  }
  ShuffleOptions options = Options("in");
  options.split_lines = 1;
  for (const std::string output : {"in/b.jsonl", "in/a.txt", "a.jsonl"}) {
    options.output = Path(output);
    EXPECT_TRUE(Shuffle(options, stop_, nullptr).ok()) << output;
  }
}

TEST(PartPathTest, PartPath_FileWithEndings_NumberStandsBeforeThem) {
  EXPECT_EQ(PartPath("d/a.jsonl.gz", 3), "d/a-00003.jsonl.gz");
  EXPECT_EQ(PartPath("d.x/a", 12), "d.x/a-00012");
  EXPECT_EQ(PartPath(".hidden", 0), ".hidden-00000");
  EXPECT_EQ(PartPath("a.txt", 123456), "a-123456.txt");
}

TEST(MemoryPlanTest, MemoryPlan_EveryPlan_StaysInTheRegion) {
  for (uint64_t region = 8 << 20; region < uint64_t{1} << 40; region *= 3) {
    for (const int threads : {1, 2, 16, 200}) {
      for (uint64_t text = 1; text < uint64_t{1} << 50; text *= 97) {
        for (const uint64_t line : {1, 600, 1 << 20}) {
          const MemoryPlan plan = PlanMemory({region, threads, text, line});
          ASSERT_LE(static_cast<size_t>(plan.readers) * (2 * plan.read_block + plan.writer_bytes), region);
          ASSERT_LE(static_cast<size_t>(plan.sorters) * plan.sorter_bytes, region);
          ASSERT_LE((plan.buckets + 2) * plan.block_bytes, plan.writer_bytes);
          ASSERT_LE(6 * plan.block_bytes, plan.sorter_bytes);
          ASSERT_GE(plan.buckets, 2u);
          ASSERT_EQ(plan.writer_bytes % 4096 + plan.read_block % 4096 + plan.block_bytes % 4096, 0u);
        }
      }
    }
  }
}

TEST(KeyRangeTest, Split_AnyNumberOfParts_HoldTheirKeys) {
  std::mt19937_64 random(9);
  for (int round = 0; round < 20'000; ++round) {
    KeyRange range;
    const uint64_t high = random();
    for (int depth = 0; depth < 4; ++depth) {
      const auto buckets = static_cast<uint32_t>(2 + random() % 500);
      const uint32_t bucket = range.BucketOf(high, buckets);
      ASSERT_LT(bucket, buckets);
      range = range.Part(bucket, buckets);
      ASSERT_GE(high, range.low);
      ASSERT_LT(Uint128{high - range.low}, range.width);
    }
  }
}

std::string ManyLines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) absl::StrAppend(&text, "line ", i, " of the text\n");
  return text;
}

TEST_F(ShuffleTest, Objects_AreShuffledAsFilesAre) {
  MemoryStores stores;
  std::filesystem::create_directory(Path("in"));
  for (const char* name : {"b", "a", "c"}) {
    const std::string text = absl::StrCat(name, "\n", ManyLines(3000));
    WriteAll(Path("in/") + name, text);
    stores.Put(std::string("s3://bucket/in/") + name, text);
  }
  for (const bool scratch : {false, true}) {
    ShuffleOptions options = Options("in");
    if (scratch) options.plan = TinyPlan(3, 2);
    const std::string expected = Run(options);
    options.inputs = {"s3://bucket/in/"};
    options.output = "s3://bucket/out";
    options.temp_dir = directory_;
    options.range_bytes = 10'000;
    const auto report = Shuffle(options, stop_, nullptr);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(stores.Get("s3://bucket/out"), expected);
    EXPECT_EQ(report->outputs, std::vector<std::string>{"s3://bucket/out"});
    EXPECT_EQ(stores.unfinished(), 0);
  }
}

TEST_F(ShuffleTest, Objects_OlderPartsGoFromTheLastOneDownAndNewOnesComeInOrder) {
  MemoryStores stores;
  WriteAll(Path("in"), ManyLines(100));
  for (int i = 0; i < 4; ++i) stores.Put(PartPath("s3://bucket/out.txt", static_cast<uint64_t>(i)), "old");
  ShuffleOptions options = Options("in");
  options.output = "s3://bucket/out.txt";
  options.split_files = 2;
  ASSERT_TRUE(Shuffle(options, stop_, nullptr).ok());
  EXPECT_THAT(stores.changes(), testing::ElementsAre("-s3://bucket/out-00003.txt", "-s3://bucket/out-00002.txt",
                                                     "-s3://bucket/out-00001.txt", "-s3://bucket/out-00000.txt",
                                                     "+s3://bucket/out-00000.txt", "+s3://bucket/out-00001.txt"));
  EXPECT_EQ(stores.unfinished(), 0);
}

TEST_F(ShuffleTest, Objects_OutputOrPartIsAmongTheInputs_IsRefused) {
  MemoryStores stores;
  stores.Put("s3://bucket/in/a-00001.txt", ManyLines(10));
  for (const uint64_t files : {0, 3}) {
    ShuffleOptions options = Options("");
    options.inputs = {"s3://bucket/in/"};
    options.split_files = files;
    options.output = files == 0 ? "s3://bucket/in/a-00001.txt" : "s3://bucket/in/a.txt";
    const absl::Status status = Shuffle(options, stop_, nullptr).status();
    EXPECT_TRUE(HasReason(status, Reason::kBadRequest)) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("is among the inputs"));
    options.output = "s3://bucket/a.txt";  // another directory
    EXPECT_TRUE(Shuffle(options, stop_, nullptr).ok());
  }
}

TEST_F(ShuffleTest, Objects_AFailureLeavesNoneAndKeepsOlderOnes) {
  MemoryStores stores;
  WriteAll(Path("in"), ManyLines(10'000));
  stores.Put("s3://bucket/out-00000.txt", "old");
  stores.before_send = [](const std::string& name, int) {
    return name == "s3://bucket/out-00002.txt" ? MakeError(Reason::kStorageError, "it was planted") : absl::OkStatus();
  };
  ShuffleOptions options = Options("in");
  options.output = "s3://bucket/out.txt";
  options.split_files = 4;
  EXPECT_TRUE(HasReason(Shuffle(options, stop_, nullptr).status(), Reason::kStorageError));
  EXPECT_THAT(stores.Names(), testing::ElementsAre("s3://bucket/out-00000.txt"));
  EXPECT_EQ(stores.Get("s3://bucket/out-00000.txt"), "old");
  EXPECT_EQ(stores.unfinished(), 0);
}

TEST_F(ShuffleTest, Objects_AnInputThatChangesBetweenPasses_IsNamed) {
  MemoryStores stores;
  const std::string text = ManyLines(20'000);
  stores.Put("s3://bucket/in", text);
  std::atomic<int> reads = 0;
  stores.before_read = [&](const std::string& name, uint64_t) {
    if (++reads == 2) stores.Put(name, text);  // the first one was for the plan
    return absl::OkStatus();
  };
  ShuffleOptions options = Options("in");
  options.inputs = {"s3://bucket/in"};
  const absl::Status status = Shuffle(options, stop_, nullptr).status();
  EXPECT_TRUE(HasReason(status, Reason::kInputUnreadable)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("s3://bucket/in was written anew"));
  EXPECT_FALSE(std::filesystem::exists(Path("out")));
}

TEST_F(ShuffleTest, Objects_WhatNeedsFiles_IsRefusedBeforeTheWork) {
  MemoryStores stores;
  WriteAll(Path("in"), "a\n");
  ShuffleOptions resumed = Options("in");
  resumed.output = "s3://bucket/out";
  resumed.resume = true;
  ShuffleOptions temporary = Options("in");
  temporary.temp_dir = "s3://bucket/tmp";
  for (const ShuffleOptions& options : {resumed, temporary}) {
    const absl::Status status = Shuffle(options, stop_, nullptr).status();
    EXPECT_TRUE(HasReason(status, Reason::kUnsupported)) << status;
  }
  EXPECT_TRUE(stores.changes().empty());
}

}  // namespace
}  // namespace cairn::corpus

// Takes the place of the C library's, for a disk without space.
extern "C" ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  static const auto real = reinterpret_cast<ssize_t (*)(int, const void*, size_t, off_t)>(dlsym(RTLD_NEXT, "pwrite"));
  std::atomic<int>& left = cairn::corpus::writes_left;
  if (left == cairn::corpus::kNoLimit || left.fetch_sub(1) > 0) return real(fd, bytes, size, offset);
  errno = ENOSPC;
  return -1;
}
