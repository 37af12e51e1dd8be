// A count whose threads the system refuses: those that it grants, and at least the one that calls, count all the same.
#include "corpus/bpe/word_counter.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>

#include "common/base/mutex.h"

namespace {

// The process is given so many more threads.
std::atomic<int> threads_left = INT_MAX;
std::atomic<int> threads_refused = 0;

}  // namespace

// Comes before the C library's.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*),
                              void* argument) noexcept {
  using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Create*>(dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left-- > 0) return real(thread, attributes, work, argument);
  ++threads_refused;
  return EAGAIN;
}

namespace cairn::corpus {
namespace {

using Counts = std::map<std::string, uint64_t>;

class WordCounterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "/word_counter_test";
    std::filesystem::create_directories(directory_);
    std::mt19937 random(1);
    std::ofstream text(directory_ + "/text");
    for (int i = 0; i < 20'000; ++i) {
      std::string word = " ";
      for (uint64_t letters = 1 + random() % 3; letters > 0; --letters) word += static_cast<char>('a' + random() % 26);
      text << word;
      ++expected_[word];
    }
  }
  void TearDown() override {
    threads_left = INT_MAX;
    std::filesystem::remove_all(directory_);
  }

  // Counts with 16 threads, of which the process gets so many.
  void CountWith(int granted, uint64_t memory_bytes) {
    SCOPED_TRACE(granted);
    CountOptions options;
    options.blocks.inputs = {directory_ + "/text"};
    options.blocks.block_bytes = 8 << 10;
    options.threads = 16;
    options.memory_bytes = memory_bytes;
    options.directory = directory_;
    options.parts = 5;
    threads_left = granted;
    threads_refused = 0;
    Mutex mutex;
    Counts counts;
    const auto summary = CountWords(options, *Pretokenizer::Named("gpt2"), SpecialMatcher(),
                                    [&](size_t, std::string_view word, uint64_t count) {
                                      MutexLock lock(mutex);
                                      EXPECT_TRUE(counts.emplace(std::string(word), count).second) << word;
                                      return absl::OkStatus();
                                    });
    threads_left = INT_MAX;
    ASSERT_TRUE(summary.ok()) << summary.status();
    EXPECT_EQ(summary->spilled, memory_bytes != 0);
    EXPECT_EQ(summary->distinct_words, expected_.size());
    EXPECT_TRUE(counts == expected_);
    EXPECT_GT(threads_refused, 0);
  }

  std::string directory_;
  Counts expected_;
};

TEST_F(WordCounterTest, CountWords_SystemRefusesThreads_OthersCountAllWords) {
  for (const int granted : {0, 1, 7}) CountWith(granted, 0);
}

TEST_F(WordCounterTest, CountWords_SystemRefusesThreadsOfACountThatSpills_OthersCountAllWords) {
  for (const int granted : {0, 1, 7}) CountWith(granted, 1);
}

}  // namespace
}  // namespace cairn::corpus
