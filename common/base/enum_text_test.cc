#include "common/base/enum_text.h"

#include <gtest/gtest.h>

#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/struct.pb.h"

namespace cairn {
namespace {

using google::protobuf::FieldDescriptorProto;

TEST(EnumTextTest, EnumName_KnownNumber_IsThatOfTheFile) {
  EXPECT_EQ(EnumName(FieldDescriptorProto::TYPE_SFIXED64), "TYPE_SFIXED64");
}

TEST(EnumTextTest, EnumName_NumberOfALaterVersion_IsShownAsUnknown) {
  // An enum of proto3 keeps numbers that this build does not know.
  EXPECT_EQ(EnumName(static_cast<google::protobuf::NullValue>(4)), "unknown (4)");
  EXPECT_EQ(EnumText(static_cast<google::protobuf::NullValue>(4)), "unknown (4)");
  EXPECT_EQ(EnumText(static_cast<google::protobuf::NullValue>(-1)), "unknown (-1)");
}

TEST(EnumTextTest, EnumText_EnumOfAFile_LosesThePrefix) {
  google::protobuf::FileDescriptorProto file;
  file.set_name("made.proto");
  file.set_syntax("proto3");
  google::protobuf::EnumDescriptorProto& way = *file.add_enum_type();
  way.set_name("WayToGo");
  way.add_value()->set_name("WAY_TO_GO_UNSPECIFIED");
  way.mutable_value(0)->set_number(0);
  way.add_value()->set_name("WAY_TO_GO_ON_FOOT");
  way.mutable_value(1)->set_number(1);
  google::protobuf::DescriptorPool pool;
  const google::protobuf::FileDescriptor* built = pool.BuildFile(file);
  ASSERT_NE(built, nullptr);
  EXPECT_EQ(EnumText(*built->enum_type(0), 1), "on-foot");
  EXPECT_EQ(EnumText(*built->enum_type(0), 0), "unspecified");
}

TEST(EnumTextTest, EnumText_EnumOfAMessage_IsTheNameInLowerCase) {
  EXPECT_EQ(EnumText(FieldDescriptorProto::LABEL_OPTIONAL), "label_optional");
}

}  // namespace
}  // namespace cairn
