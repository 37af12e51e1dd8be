#include "foreign/read/pickle/pickle_outline.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/status/reason.h"
#include "foreign/read/pickle/pickle.h"
#include "foreign/read/testing/pickle_writer.h"

namespace cairn {
namespace {

using pickle_writer::Dict;
using pickle_writer::Global;
using pickle_writer::Int;
using pickle_writer::LittleEndian;
using pickle_writer::Object;
using pickle_writer::Pickle;
using pickle_writer::Text;
using pickle_writer::Tuple;

constexpr uint64_t kMost = 1 << 20;

absl::StatusOr<std::string> Outline(const std::string& file, uint64_t most = kMost) {
  const ReadRange read = [&](uint64_t offset, uint64_t bytes) -> absl::StatusOr<std::string> {
    if (bytes > file.size() || offset > file.size() - bytes) {
      ADD_FAILURE() << "reads " << bytes << " bytes at " << offset << " of " << file.size();
    }
    return file.substr(offset, bytes);
  };
  return OutlinePickle(file.size(), read, "file", most);
}

std::string Bytes8(const std::string& bytes) { return "\x8e" + LittleEndian(bytes.size(), 8) + bytes; }

TEST(PickleOutlineTest, Outline_ByteStringsOfEveryKind_AreKnownByTheirPlace) {
  const std::string large(100'000, 'l');
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"C" + LittleEndian(5, 1) + "short", "short"},
      {"U" + LittleEndian(6, 1) + "string", "string"},
      {"B" + LittleEndian(4, 4) + "four", "four"},
      {"T" + LittleEndian(3, 4) + "old", "old"},
      {Bytes8(large), large},
      {"\x96" + LittleEndian(5, 8) + "array", "array"},
      {Bytes8(""), ""},
  };
  std::vector<std::string> values;
  for (const auto& [opcodes, contents] : kinds) values.push_back(opcodes);
  const std::string file = Pickle(Tuple(values)) + "what follows";
  const auto outline = Outline(file);
  ASSERT_TRUE(outline.ok()) << outline.status();
  EXPECT_LT(outline->size(), 300u);
  const auto document = ReadPickle(*outline, "outline", {});
  ASSERT_TRUE(document.ok()) << document.status();
  const auto elements = document->Elements(document->root(), 10);
  ASSERT_EQ(elements.size(), kinds.size());
  for (size_t i = 0; i < kinds.size(); ++i) {
    const auto place = PlaceOfBytes(*document, elements[i]);
    ASSERT_TRUE(place.has_value()) << i;
    EXPECT_EQ(file.substr(place->offset, place->bytes), kinds[i].second) << i;
  }
}

TEST(PickleOutlineTest, Outline_EverythingElse_StaysAsItWas) {
  const std::string text(40'000, 't');  // more than is read at once
  const std::string object = Object(Global("some.module", "Class"), Dict({{Text("k"), Int(-7)}}));
  const std::string frames = "\x95" + LittleEndian(1, 8) + Text(text) + "\x95" + LittleEndian(1 << 30, 8);
  const std::string file = Pickle("(" + frames + object + "G\x3f\xf0" + std::string(6, '\0') + "J" +
                                  LittleEndian(0xffffffff, 4) + "K\x07" + "M\x01\x02" + "\x88\x89N)]}\x8ft");
  const auto outline = Outline(file);
  ASSERT_TRUE(outline.ok()) << outline.status();
  const auto document = ReadPickle(*outline, "outline", {});
  ASSERT_TRUE(document.ok()) << document.status();
  const auto values = document->Elements(document->root(), 20);
  ASSERT_EQ(values.size(), 13u);
  EXPECT_EQ(document->Text(values[0]), text);
  EXPECT_EQ(document->Describe(values[1]), "some.module.Class");
  EXPECT_EQ(document->Int(*document->Find(values[1], "k")), -7);
  EXPECT_EQ(document->Float(values[2]), 1.0);
  EXPECT_EQ(document->Int(values[3]), -1);
  EXPECT_EQ(document->Int(values[4]), 7);
  EXPECT_EQ(document->Int(values[5]), 0x201);
  for (const PickleValue value : values) EXPECT_FALSE(PlaceOfBytes(*document, value).has_value());
}

TEST(PickleOutlineTest, Outline_CutOffAnywhere_IsRefused) {
  const std::string file =
      Pickle(Tuple({Text("t"), Bytes8("bytes"), "C\x02xx", Global("m", "n"), Int(1), "G" + std::string(8, '\0')}));
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_EQ(ReasonOf(Outline(file.substr(0, size)).status()), Reason::kBadForeignFile) << size;
  }
  EXPECT_TRUE(Outline(file).ok());
}

TEST(PickleOutlineTest, Outline_LengthsNearTheEndOfNumbers_AreRefused) {
  for (const char* opcode : {"\x8e", "\x96", "\x8d"}) {
    for (const uint64_t length : {~uint64_t{0}, ~uint64_t{0} - 8, uint64_t{1} << 63}) {
      const absl::Status status = Outline(Pickle(opcode + LittleEndian(length, 8) + "x")).status();
      EXPECT_EQ(ReasonOf(status), Reason::kBadForeignFile) << status;
    }
  }
}

// Its own persistent values would be taken for places of the file.
TEST(PickleOutlineTest, Outline_PersistentValueOfTheWriter_IsRefused) {
  const absl::Status status = Outline(Pickle(Tuple({Int(0), Int(5)}) + "Q")).status();
  EXPECT_EQ(ReasonOf(status), Reason::kUnsupported) << status;
  for (const char* opcode : {"\x82", "\x98", "P", "i"}) {
    EXPECT_EQ(ReasonOf(Outline(Pickle(opcode)).status()), Reason::kUnsupported) << opcode;
  }
}

TEST(PickleOutlineTest, Outline_LongerThanAllowed_IsRefused) {
  EXPECT_EQ(ReasonOf(Outline(Pickle(Text(std::string(5000, 'x'))), 4000).status()), Reason::kMemoryLimit);
  EXPECT_EQ(ReasonOf(Outline(Pickle(std::string(5000, 'N')), 4000).status()), Reason::kMemoryLimit);
  EXPECT_TRUE(Outline(Pickle(Bytes8(std::string(5000, 'x'))), 4000).ok());
  EXPECT_EQ(ReasonOf(Outline(Pickle("c" + std::string(5000, 'x'))).status()), Reason::kBadForeignFile);
}

TEST(PickleOutlineTest, PlaceOfBytes_OfOtherValues_IsNothing) {
  const auto document = ReadPickle(Pickle(Tuple({Int(1), Int(2)})), "pickle", {});
  ASSERT_TRUE(document.ok());
  EXPECT_FALSE(PlaceOfBytes(*document, document->root()).has_value());
}

}  // namespace
}  // namespace cairn
