// A vocabulary that is trained from the counts of parts is the one of the whole.
#include "corpus/bpe/trainer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "corpus/bpe/pretokenizer.h"
#include "corpus/bpe/vocabulary.h"
#include "corpus/io/input_part.h"

namespace cairn::corpus {
namespace {

class TrainerTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat(testing::TempDir(), "/trainer_test-",
                              testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_ + "/counts");
  }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ + "/" + name, std::ios::binary) << text;
    return directory_ + "/" + name;
  }
  // Words, blanks, newlines, a special token, letters of two bytes and bytes that are no UTF-8.
  static std::string RandomText(uint32_t seed, size_t pieces) {
    const std::vector<std::string> choices = {"ab", "abc", "é", " ", " ", "\n", "'s", "12", "<|e|>", "<|", "\xff"};
    std::mt19937 random(seed);
    std::string text;
    for (size_t i = 0; i < pieces; ++i) text += choices[random() % choices.size()];
    return text;
  }
  TrainOptions Options(const std::vector<std::string>& inputs) const {
    TrainOptions options;
    options.inputs = WholeInputs(inputs);
    options.vocab_size = 300;
    options.special_tokens = {"<|e|>"};
    options.threads = 2;
    options.work_directory = directory_ + "/work";
    return options;
  }
  // Trains from the counts of so many parts.
  absl::StatusOr<TrainSummary> TrainInParts(TrainOptions options, const Pretokenizer& pretokenizer, uint32_t parts) {
    std::filesystem::create_directories(directory_ + "/counts");  // the training before has removed it
    const std::vector<std::string> paths = PathsOf(options.inputs);
    std::vector<WordRun> runs;
    const TrainOptions all = options;
    for (uint32_t number = 1; number <= parts; ++number) {
      auto part = FindPart(paths, {number, parts}, CutsForCounting(all, pretokenizer));
      if (!part.ok()) return part.status();
      pieces_ += part->pieces.size();
      options.inputs = std::move(part->pieces);
      auto counted = CountPart(options, pretokenizer, absl::StrCat(directory_, "/counts/part-", number));
      if (!counted.ok()) return counted.status();
      runs.push_back(counted->run);
    }
    options = all;
    options.work_directory = directory_ + "/counts";
    options.resume = true;
    const absl::Status recorded = RecordParts(options, pretokenizer, runs);
    if (!recorded.ok()) return recorded;
    return TrainBpe(options, pretokenizer);
  }

  std::string directory_;
  size_t pieces_ = 0;
};

TEST_F(TrainerTest, CountPart_AnyText_TheVocabularyIsThatOfTheWhole) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const std::vector<std::string> paths = {Write("a", RandomText(seed, 400)), Write("b", RandomText(seed + 1000, 9))};
    TrainOptions options = Options(paths);
    options.unit = seed % 3 == 0 ? TextUnit::kLine : TextUnit::kFile;
    options.invalid_utf8 = seed % 4 == 0 ? InvalidUtf8::kSkip : InvalidUtf8::kBytes;
    const auto pretokenizer = seed % 5 == 0 ? Pretokenizer::FromPattern("[ab]+|.") : Pretokenizer::Named("gpt4");
    ASSERT_TRUE(pretokenizer.ok()) << pretokenizer.status();
    const auto whole = TrainBpe(options, *pretokenizer);
    ASSERT_TRUE(whole.ok()) << whole.status();
    const auto parts = TrainInParts(options, *pretokenizer, 2 + seed % 6);
    ASSERT_TRUE(parts.ok()) << parts.status();
    EXPECT_EQ(TokenizerJson(parts->vocabulary), TokenizerJson(whole->vocabulary));
    EXPECT_EQ(parts->count.distinct_words, whole->count.distinct_words);
  }
  EXPECT_GT(pieces_, 120u);  // most of the files were divided
}

TEST_F(TrainerTest, TrainBpe_ACountOfAPartIsDamaged_Fails) {
  const Pretokenizer pretokenizer = *Pretokenizer::Named("gpt2");
  TrainOptions options = Options({Write("a", RandomText(1, 400))});
  auto counted = CountPart(options, pretokenizer, directory_ + "/counts/part-1");
  ASSERT_TRUE(counted.ok()) << counted.status();
  {
    std::fstream file(counted->run.path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(5);
    file.put('\x7f');
  }
  options.work_directory = directory_ + "/counts";
  options.resume = true;
  ASSERT_TRUE(RecordParts(options, pretokenizer, {counted->run}).ok());
  EXPECT_TRUE(HasReason(TrainBpe(options, pretokenizer).status(), Reason::kChecksumMismatch));
}

}  // namespace
}  // namespace cairn::corpus
