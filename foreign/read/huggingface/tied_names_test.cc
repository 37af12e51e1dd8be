#include "foreign/read/huggingface/tied_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using Names = std::set<std::string, std::less<>>;
using Texts = std::vector<std::pair<std::string, std::string>>;

constexpr char kTied[] = R"({"tie_word_embeddings": true})";

TEST(TiedNamesTest, FindTiedNames_OfAHeader_AreThoseOfStoredTensors) {
  const Names stored = {"embed.weight", "format", "other.weight"};
  const Texts metadata = {{"format", "pt"},
                          {"head.weight", "embed.weight"},
                          {"third.weight", "head.weight"},
                          {"gone.weight", "gone"},
                          {"other.weight", "embed.weight"},
                          {"", "embed.weight"},
                          {"a#flat:b", "embed.weight"}};
  EXPECT_THAT(FindTiedNames({stored, metadata, ""}), ElementsAre(Pair("head.weight", "embed.weight")));
}

TEST(TiedNamesTest, FindTiedNames_ConfigTiesAndEmbeddingIsStored_GivesTheHead) {
  const std::pair<Names, std::pair<std::string, std::string>> models[] = {
      {{"model.embed_tokens.weight"}, {"lm_head.weight", "model.embed_tokens.weight"}},
      {{"transformer.wte.weight"}, {"lm_head.weight", "transformer.wte.weight"}},
      {{"model.language_model.embed_tokens.weight"}, {"lm_head.weight", "model.language_model.embed_tokens.weight"}},
      {{"language_model.model.embed_tokens.weight"},
       {"language_model.lm_head.weight", "language_model.model.embed_tokens.weight"}},
  };
  for (const auto& [stored, tie] : models) {
    EXPECT_THAT(FindTiedNames({stored, {}, kTied}), ElementsAre(Pair(tie.first, tie.second)));
    EXPECT_THAT(FindTiedNames({stored, {}, R"({"text_config": {"tie_word_embeddings": true}})"}),
                ElementsAre(Pair(tie.first, tie.second)));
    EXPECT_THAT(FindTiedNames({stored, {}, R"({"tie_word_embeddings": false})"}), IsEmpty());
    EXPECT_THAT(FindTiedNames({stored, {}, "no JSON"}), IsEmpty());
    EXPECT_THAT(FindTiedNames({stored, {}, ""}), IsEmpty());
  }
}

TEST(TiedNamesTest, FindTiedNames_ConfigTiesAndHeadIsStored_GivesTheEmbeddingOfThatModel) {
  const std::pair<Names, std::pair<std::string, std::string>> models[] = {
      {{"lm_head.weight", "model.norm.weight"}, {"model.embed_tokens.weight", "lm_head.weight"}},
      {{"lm_head.weight", "transformer.h.0.attn.bias"}, {"transformer.wte.weight", "lm_head.weight"}},
      {{"lm_head.weight", "model.language_model.norm.weight", "model.visual.bias"},
       {"model.language_model.embed_tokens.weight", "lm_head.weight"}},
      {{"embed_out.weight", "gpt_neox.layers.0.bias"}, {"gpt_neox.embed_in.weight", "embed_out.weight"}},
  };
  for (const auto& [stored, tie] : models) {
    EXPECT_THAT(FindTiedNames({stored, {}, kTied}), ElementsAre(Pair(tie.first, tie.second)));
  }
  EXPECT_THAT(FindTiedNames({Names{"lm_head.weight"}, {}, kTied}), IsEmpty()) << "nothing says which model it is";
}

TEST(TiedNamesTest, FindTiedNames_BothAreStored_TiesNothing) {
  const Names stored = {"lm_head.weight", "model.embed_tokens.weight"};
  EXPECT_THAT(FindTiedNames({stored, {}, kTied}), IsEmpty());
}

}  // namespace
}  // namespace cairn
