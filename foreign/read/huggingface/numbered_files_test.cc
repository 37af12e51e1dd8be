#include "foreign/read/huggingface/numbered_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn {
namespace {

using ::testing::ElementsAre;

TEST(NumberedFilesTest, FindNumberedFiles_SeveralSets_AreToldApart) {
  const std::vector<std::string> names = {"model-00001-of-00003.safetensors",
                                          "model-00003-of-00003.safetensors",
                                          "model-00001-of-00002.safetensors",
                                          "other-1-of-1.safetensors",
                                          "model.safetensors",
                                          "model-00002-of-00003.bin"};
  const auto sets = FindNumberedFiles(names);
  ASSERT_EQ(sets.size(), 3u);
  const NumberedFiles& three = sets.at("model-*-of-00003.safetensors");
  EXPECT_EQ(three.total, 3);
  EXPECT_EQ(three.missing(), 1);
  EXPECT_THAT(three.names, ElementsAre(names[0], names[1]));
  EXPECT_EQ(sets.at("model-*-of-00002.safetensors").missing(), 1);
  EXPECT_EQ(sets.at("other-*-of-1.safetensors").missing(), 0);
}

TEST(NumberedFilesTest, FindNumberedFiles_TwoSpellingsOfANumber_CountOnce) {
  const std::vector<std::string> names = {"m-1-of-2.safetensors", "m-01-of-2.safetensors"};
  EXPECT_EQ(FindNumberedFiles(names).begin()->second.missing(), 1);
}

TEST(NumberedFilesTest, FindNumberedFiles_NumbersFromZero_AreComplete) {
  const std::vector<std::string> names = {"m-0-of-2.safetensors", "m-1-of-2.safetensors"};
  EXPECT_EQ(FindNumberedFiles(names).begin()->second.missing(), 0);
}

}  // namespace
}  // namespace cairn
