#include "corpus/preprocess/python_json.h"

#include <gtest/gtest.h>

#include <random>

#include "absl/status/statusor.h"
#include "common/status/reason.h"
#include "corpus/preprocess/document_parser.h"

namespace cairn::corpus {
namespace {

std::string Padded(std::string_view line) { return std::string(line) + std::string(kLinePadding, ' '); }

// Holds what both parsers make of one line: they agree, or only the exact one accepts it.
struct Parsed {
  absl::Status status;
  std::vector<std::vector<std::string>> texts;
};
Parsed ParseLine(std::string_view line, const std::vector<std::string>& keys = {"text"}) {
  const auto copy = [](const std::vector<FieldValue>& values) {
    std::vector<std::vector<std::string>> result;
    for (const FieldValue& value : values) result.emplace_back(value.texts.begin(), value.texts.end());
    return result;
  };
  PythonJson exact;
  std::vector<FieldValue> values;
  Parsed parsed{exact.Parse(line, keys, values), {}};
  if (parsed.status.ok()) parsed.texts = copy(values);
  DocumentParser parser(keys);
  const std::string padded = Padded(line);
  const absl::Status fast = parser.Parse(std::string_view(padded).substr(0, line.size()));
  EXPECT_EQ(fast.ok(), parsed.status.ok()) << line;
  if (fast.ok() && parsed.status.ok()) {
    EXPECT_EQ(copy(parser.values()), parsed.texts) << line;
  }
  return parsed;
}

TEST(PythonJsonTest, Parse_TextsAndLists_AreRead) {
  EXPECT_EQ(ParseLine(R"({"text": "a\n\u00e9\ud83d\ude00\/"})").texts[0][0], "a\n\u00e9\U0001F600/");
  EXPECT_EQ(ParseLine(R"( {"id":[{"x":[]}],"text":["a","b"]} )").texts[0], (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(ParseLine(R"({"text":[]})").texts[0].empty());
  EXPECT_EQ(ParseLine("{\"text\":\"a\"}\r").texts[0][0], "a");
}

// Returns the numbers that both parsers read, or what is wrong.
absl::StatusOr<std::vector<int8_t>> ParseNumbers(std::string_view line) {
  const std::vector<std::string> keys = {"text", "n"};
  PythonJson exact;
  std::vector<FieldValue> values;
  const absl::Status status = exact.Parse(line, keys, values, 1);
  DocumentParser parser(keys, 1);
  const std::string padded = Padded(line);
  const absl::Status fast = parser.Parse(std::string_view(padded).substr(0, line.size()));
  EXPECT_EQ(fast.ok(), status.ok()) << line;
  if (!status.ok()) return status;
  EXPECT_EQ(parser.values()[1].numbers, values[1].numbers) << line;
  return values[1].numbers;
}

TEST(PythonJsonTest, Parse_ListsOfNumbers_AreRead) {
  EXPECT_EQ(*ParseNumbers(R"({"text":"a","n":[0,1 , -128,127]})"), (std::vector<int8_t>{0, 1, -128, 127}));
  EXPECT_EQ(*ParseNumbers(R"({"n":[],"text":["a"],"x":NaN})"), (std::vector<int8_t>{}));
  EXPECT_EQ(*ParseNumbers(R"({"n":"a","text":"a","n":[-0],"x":NaN})"), (std::vector<int8_t>{0}));
}

TEST(PythonJsonTest, Parse_OtherThanSmallWholeNumbers_AreRefused) {
  for (const char* value : {"128", "[128]", "[-129]", "[1.0]", "[1e0]", "[true]", "[null]", "[\"1\"]", "[[1]]", "\"1\"",
                            "[NaN]", "[99999999999999999999]", "{}"}) {
    const auto read = ParseNumbers(std::string(R"({"text":"a","n":)") + value + "}");
    ASSERT_FALSE(read.ok()) << value;
    EXPECT_NE(read.status().message().find("'n' must be a list of whole numbers from -128 to 127"), std::string::npos)
        << read.status();
  }
}

TEST(PythonJsonTest, Parse_EqualKeys_TheLastCounts) {
  EXPECT_EQ(ParseLine(R"({"text":"a","text":"b"})").texts[0][0], "b");
  EXPECT_EQ(ParseLine(R"({"text":7,"text":"b"})").texts[0][0], "b");
  EXPECT_FALSE(ParseLine(R"({"text":"b","text":7})").status.ok());
  EXPECT_EQ(ParseLine(R"({"te\u0078t":"b"})").texts[0][0], "b");
}

TEST(PythonJsonTest, Parse_WhatOnlyPythonAccepts_IsRead) {
  for (const char* line : {R"({"n":NaN,"text":"a"})", R"({"n":[-Infinity,Infinity],"text":"a"})",
                           R"({"n":123456789012345678901234567890,"text":"a"})", R"({"n":1e999,"text":"a"})",
                           R"({"n":"\ud800","text":"a"})", R"({"\udfff":1,"text":"a"})"}) {
    EXPECT_EQ(ParseLine(line).texts, (std::vector<std::vector<std::string>>{{"a"}})) << line;
  }
}

TEST(PythonJsonTest, Parse_Mistakes_SaysWhatIsWrongAndWhere) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "blank"},
      {"  \r", "blank"},
      {"[1]", "no JSON object"},
      {"\"x\"", "no JSON object"},
      {"x", "column 1: a value was expected"},
      {R"({"text":"a"} x)", "column 14: the JSON object ends before"},
      {R"({"text":"a",})", "column 13: a string in double quotes"},
      {R"({"text" "a"})", "column 9: ':'"},
      {R"({"text":"a)", "column 9: this string has no end"},
      {R"({"text":"\x"})", "column 10: no such escape"},
      {R"({"text":"\u12"})", "four hexadecimal"},
      {"{\"text\":\"a\tb\"}", "control character 0x09"},
      {R"({"text":"\ud800"})", "half of a surrogate pair"},
      {R"({"text":7})", "column 9: the value of 'text' must be a text"},
      {R"({"text":null})", "must be a text"},
      {R"({"text":["a",7]})", "column 14: the value of 'text'"},
      {R"({"text":{"a":7}})", "must be a text"},
      {R"({"title":"a"})", "no key 'text'"},
      {"{}", "no key 'text'"},
      {R"({"n":01,"text":"a"})", "column 7: ','"},
      {R"({"n":1.,"text":"a"})", "column 7: ','"},
      {R"({"n":tru,"text":"a"})", "a value was expected"},
      {"{\"text\":\"\xFF\"}", "not UTF-8"},
      {"\xEF\xBB\xBF{\"text\":\"a\"}", "byte order mark"},
  };
  for (const auto& [line, expected] : cases) {
    const absl::Status status = ParseLine(line).status;
    EXPECT_TRUE(HasReason(status, Reason::kBadJsonLine)) << line;
    EXPECT_NE(std::string(status.message()).find(expected), std::string::npos) << line << ": " << status;
  }
}

TEST(PythonJsonTest, Parse_DeepNesting_IsRefused) {
  EXPECT_TRUE(ParseLine(R"({"n":)" + std::string(900, '[') + std::string(900, ']') + R"(,"text":"a"})").status.ok());
  const std::string deep = R"({"n":)" + std::string(100000, '[') + R"(,"text":"a"})";
  EXPECT_FALSE(ParseLine(deep).status.ok());
}

// Whatever is damaged, the two parsers must agree (ParseLine compares them).
TEST(PythonJsonTest, Parse_DamagedLines_ParsersAgree) {
  const std::string seed =
      R"({"id": -12.5e+3, "ok": [true, false, null, {"a\\\"b": "\u00e9"}], "text": "x\ty\ud83d\ude00"})";
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    std::string line = seed;
    for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n) {
      const size_t at = random() % line.size();
      switch (random() % 3) {
        case 0:
          line[at] = "{}[]\",:\\ux0e.- \x01\xC3n"[random() % 19];
          break;
        case 1:
          line.erase(at, 1 + random() % 4);
          break;
        default:
          line.insert(at, line.substr(random() % line.size(), random() % 6));
      }
      if (line.empty()) line = " ";
    }
    ParseLine(line);
  }
}

}  // namespace
}  // namespace cairn::corpus
