#include "store/read/step_marks.h"

#include <gtest/gtest.h>

#include <initializer_list>

#include "absl/time/time.h"
#include "store/read/change_number.h"

namespace cairn {
namespace {

using Tags = std::vector<std::string>;

StepMarks Marks(std::initializer_list<const char*> names) {
  StepMarks marks;
  for (const char* name : names) marks.Add(name);
  return marks;
}

TEST(StepMarksTest, FilesThatComeAndGo) {
  const StepMarks marks = Marks({"0001", "0001.verdict", "pinned", "paper.tag", "a.b.tag", "9.tag", "pinned2"});
  EXPECT_TRUE(marks.pinned());
  EXPECT_EQ(marks.tags(), (Tags{"a.b", "paper"}));
  EXPECT_FALSE(Marks({"0001"}).pinned());
}

TEST(StepMarksTest, TheHighestNumberCounts) {
  EXPECT_TRUE(Marks({"1-7-pinned.mark"}).pinned());
  EXPECT_FALSE(Marks({"1-7-pinned.mark", "1-8-unpinned.mark"}).pinned());
  EXPECT_FALSE(Marks({"1-10-unpinned.mark", "1-9-pinned.mark"}).pinned()) << "numbers, and not texts";
  EXPECT_TRUE(Marks({"2-1-pinned.mark", "1-10-unpinned.mark"}).pinned()) << "a later holder of the root";
  EXPECT_FALSE(Marks({"pinned", "1-1-unpinned.mark"}).pinned()) << "a file counts as the lowest";
  EXPECT_TRUE(Marks({"1-1-unpinned.mark", "1-1-pinned.mark"}).pinned()) << "the one that protects";
}

TEST(StepMarksTest, TagsHaveRecordsOfTheirOwn) {
  const StepMarks marks = Marks({"1-1-tag-x.mark.mark", "1-2-untag-paper.mark", "paper.tag", "1-3-tag-a-b.mark",
                                 "1-4-tag-y.tag.mark", "1-5-unpinned.mark"});
  EXPECT_EQ(marks.tags(), (Tags{"a-b", "x.mark", "y.tag"}));
  EXPECT_FALSE(marks.IsSet("paper"));
  ASSERT_EQ(marks.RecordsOf("paper").size(), 2u);
  EXPECT_EQ(marks.RecordsOf("paper")[0].name, "paper.tag");
  for (const bool set : {false, true}) {
    for (const char* tag : {"", "a-b", "x.tag"}) {
      const std::string name = StepMarks::NameOf(tag, {3, 4}, set);
      const StepMarks one = Marks({name.c_str()});
      EXPECT_EQ(one.IsSet(tag), set) << name;
      EXPECT_EQ(one.RecordsOf(tag).size(), 1u) << name;
    }
  }
}

TEST(StepMarksTest, NamesThatAreNone) {
  for (const char* name :
       {".mark", "-.mark", "1-.mark", "1-2.mark", "1-2-.mark", "1-2-tag-.mark", "1-2-tag-9.mark", "1--2-pinned.mark",
        "01-2-pinned.mark", "1-2-pinned", "1-2-pinned.mark.tmp", "99999999999999999999-1-pinned.mark",
        "1-9223372036854775807-pinned.mark", "x-1-pinned.mark"}) {
    const StepMarks marks = Marks({name});
    EXPECT_FALSE(marks.pinned()) << name;
    EXPECT_TRUE(marks.tags().empty()) << name;
  }
}

TEST(ChangeNumberTest, NextChange_IsAboveAllThatWereUsed) {
  const absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  const ChangeNumber first = NextChange({}, 3, now);
  EXPECT_EQ(first.epoch, 3u);
  // It was put, and does not stand: the network has it.
  EXPECT_GT(NextChange({}, 3, now + absl::Microseconds(1)), first);
  EXPECT_GT(NextChange(first, 3, now), first);
  EXPECT_EQ(NextChange(first, 4, absl::UnixEpoch()).epoch, 4u) << "another machine's clock does not matter";
  EXPECT_GT(NextChange({7, 9}, 3, now), (ChangeNumber{7, 9})) << "somebody has removed the records of epochs";
  EXPECT_EQ(ParseChangeNumber(ToString(first)), first);
}

TEST(ChangeNumberTest, NextChange_OfTheHighestThatCounts_CountsToo) {
  constexpr uint64_t kEnd = uint64_t{1} << 62;
  EXPECT_FALSE(ParseChangeNumber(ToString({1, kEnd})).has_value());
  EXPECT_FALSE(ParseChangeNumber(ToString({kEnd, 1})).has_value());
  const ChangeNumber last = {3, kEnd - 1};
  EXPECT_EQ(ParseChangeNumber(ToString(last)), last);
  const ChangeNumber next = NextChange(last, 3, absl::UnixEpoch());
  EXPECT_GT(next, last);
  EXPECT_EQ(ParseChangeNumber(ToString(next)), next);
}

}  // namespace
}  // namespace cairn
