#include "common/format/stored_item.h"

#include <gtest/gtest.h>

#include "common/status/reason.h"

namespace cairn {
namespace {

TEST(StoredItemTest, StoredName_EachKindOfItem_HasItsFormAndBytes) {
  StoredItem item{.name = "w", .dtype = DType::kBfloat16, .global_shape = {8, 4}, .box = {{4, 0}, {4, 4}}};
  EXPECT_EQ(item.stored_name(), "w");
  EXPECT_EQ(item.bytes(), 32u);
  item.flat = FlatRange{3, 9};
  EXPECT_EQ(item.stored_name(), "w#flat:4,0:4,4:3-9");
  EXPECT_EQ(item.bytes(), 12u);
  const StoredItem object{.name = "rng",
                          .dtype = DType::kUint8,
                          .global_shape = {4096},
                          .box = {{0}, {4096}},
                          .object = true,
                          .object_rank = 3};
  EXPECT_EQ(object.stored_name(), "rng#rank:3");
  EXPECT_EQ(object.bytes(), 4096u);
  const StoredItem scalar{.name = "s", .dtype = DType::kInt64};
  EXPECT_EQ(scalar.bytes(), 8u);
}

TEST(CheckNameTest, CheckName_NamesOfTrainers_AreAccepted) {
  for (const char* name : {"w", "model.layers.0.self_attn.q_proj.weight", "état.重み", "a b", "#", "\U0001f600"}) {
    EXPECT_TRUE(CheckName(name).ok()) << name;
  }
}

TEST(CheckNameTest, CheckName_BadNames_AreRefused) {
  for (std::string_view name :
       {std::string_view(""), std::string_view("a\nb"), std::string_view("a\0b", 3), std::string_view("\xff"),
        std::string_view("\xc0\x80"), std::string_view("\xed\xa0\x80"), std::string_view("\xf4\x90\x80\x80"),
        std::string_view("\xc2\x85"), std::string_view("\xe2\x82"), std::string_view("__metadata__"),
        std::string_view("w#flat:0"), std::string_view("x#rank:1")}) {
    EXPECT_TRUE(HasReason(CheckName(name), Reason::kBadName)) << name;
  }
  EXPECT_FALSE(CheckName(std::string(1025, 'x')).ok());
  EXPECT_TRUE(CheckName(std::string(1024, 'x')).ok());
}

}  // namespace
}  // namespace cairn
