#include "corpus/bpe/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "common/status/reason.h"
#include "corpus/bpe/load_tokenizer.h"
#include "corpus/bpe/pretokenizer.h"
#include "corpus/io/testing/killed_at_name.h"
#include "corpus/tokenizer/tokenizer.h"

namespace cairn::corpus {
namespace {

namespace fs = std::filesystem;

// Makes a tokenizer of the 256 bytes and of these merges of two letters, which cuts text into words as cl100k does.
BpeVocabulary MakeVocabulary(const std::vector<std::string>& merges) {
  BpeVocabulary vocabulary;
  vocabulary.pattern = Pretokenizer::Named("cl100k")->pattern();
  for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.push_back({std::string(1, static_cast<char>(byte))});
  for (const std::string& merge : merges) {
    vocabulary.tokens.push_back({merge});
    vocabulary.merges.emplace_back(static_cast<unsigned char>(merge[0]), static_cast<unsigned char>(merge[1]));
  }
  return vocabulary;
}

std::vector<std::string> AllPairsOfLetters() {
  std::vector<std::string> pairs;
  for (char left = 'a'; left <= 'z'; ++left) {
    for (char right = 'a'; right <= 'z'; ++right) pairs.push_back({left, right});
  }
  return pairs;
}

class VocabularyTest : public testing::Test {
 protected:
  void SetUp() override {
    new_.tokens.push_back({"</s>", true});  // so tokenizer_config.json differs too
    std::string name = testing::TempDir() + "/vocabulary-XXXXXX";
    directory_ = mkdtemp(name.data());
    ASSERT_TRUE(WriteVocabulary(new_, directory_).ok());
    new_files_ = Files();
    ASSERT_EQ(new_files_.size(), 5u);
    ASSERT_TRUE(WriteVocabulary(old_, directory_).ok());
    old_files_ = Files();
    ASSERT_EQ(old_files_.size(), 5u);
  }
  void TearDown() override { fs::remove_all(directory_); }

  // Returns the content of the files that are not hidden.
  std::map<std::string, std::string> Files() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      const std::string name = entry.path().filename().string();
      std::ifstream file(entry.path(), std::ios::binary);
      if (name.front() != '.') files[name] = {std::istreambuf_iterator<char>(file), {}};
    }
    return files;
  }

  const BpeVocabulary old_ = MakeVocabulary({"ab"});
  BpeVocabulary new_ = MakeVocabulary(AllPairsOfLetters());
  std::map<std::string, std::string> old_files_, new_files_;
  std::string directory_;
};

TEST_F(VocabularyTest, Write_KilledAtEveryChangeOfAName_LeavesNoMixture) {
  int change = 1;
  for (; KilledAtName(change, [&] { WriteVocabulary(new_, directory_).IgnoreError(); }); ++change) {
    const auto files = Files();
    for (const auto& whole : {old_files_, new_files_}) {
      // All files are of the one set or all of the other.
      if (files.empty() || whole.at(files.begin()->first) != files.begin()->second) continue;
      for (const auto& [name, content] : files) EXPECT_EQ(whole.at(name), content) << name << " at change " << change;
    }
    // A reader gets one of the two whole, or an error that names what is not there.
    const auto tokenizer = LoadBpeTokenizer(directory_);
    if (tokenizer.ok()) {
      const bool is_old = files.at("tokenizer.json") == old_files_.at("tokenizer.json");
      EXPECT_EQ((*tokenizer)->vocab_size(), is_old ? 257u : 256u + 26 * 26 + 1) << "at change " << change;
    } else {
      EXPECT_TRUE(HasReason(tokenizer.status(), Reason::kInputUnreadable)) << tokenizer.status();
      EXPECT_THAT(std::string(tokenizer.status().message()), testing::HasSubstr("tokenizer.json"));
    }
    const absl::Status pair = LoadGpt2Tokenizer(directory_ + "/vocab.json", directory_ + "/merges.txt").status();
    EXPECT_EQ(pair.ok(), files.contains("vocab.json") && files.contains("merges.txt")) << pair;
    if (!pair.ok()) {
      EXPECT_THAT(std::string(pair.message()),
                  testing::HasSubstr(files.contains("vocab.json") ? "merges.txt" : "vocab.json"));
    }
    ASSERT_TRUE(WriteVocabulary(old_, directory_).ok());
  }
  EXPECT_EQ(change, 11) << "five names go and five come";
  EXPECT_EQ(Files(), new_files_);
}

TEST_F(VocabularyTest, Write_DiskGetsFull_OldFilesStay) {
  // tokenizer.json is the largest file, by several pages. A limit of a file's size stands for the disk's.
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limited = before;
  limited.rlim_cur = new_files_.at("tokenizer.json").size() / 4096 * 4096;
  setrlimit(RLIMIT_FSIZE, &limited);
  const absl::Status status = WriteVocabulary(new_, directory_);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(".tokenizer.json"));
  EXPECT_EQ(Files(), old_files_);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), {}), 5) << "no hidden file is left";
}

}  // namespace
}  // namespace cairn::corpus
