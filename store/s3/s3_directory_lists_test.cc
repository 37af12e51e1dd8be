#include "store/s3/s3_directory_lists.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;

// A store with these keys.
class Keys {
 public:
  explicit Keys(std::set<std::string> keys) : keys_(std::move(keys)) {}

  std::vector<S3Listed> PageBehind(const std::string& after, const std::string& prefix) {
    ++requests_;
    std::vector<S3Listed> page;
    for (auto key = keys_.upper_bound(after); key != keys_.end() && page.size() < S3DirectoryLists::kPage; ++key) {
      if (key->starts_with(prefix)) page.push_back({.name = *key, .etag = absl::StrCat("of ", *key)});
    }
    return page;
  }
  // What a person would say is in a directory.
  std::vector<std::string> In(const std::string& directory) const {
    std::set<std::string> names;
    for (const std::string& key : keys_) {
      if (!key.starts_with(directory + "/")) continue;
      const std::string rest = key.substr(directory.size() + 1);
      names.insert(rest.substr(0, rest.find('/') == rest.npos ? rest.npos : rest.find('/') + 1));
    }
    std::vector<std::string> sorted(names.begin(), names.end());
    std::sort(sorted.begin(), sorted.end(), [](const std::string& a, const std::string& b) {
      return a.substr(0, a.find('/')) < b.substr(0, b.find('/'));
    });
    return sorted;
  }
  int requests() const { return requests_; }

 private:
  const std::set<std::string> keys_;
  int requests_ = 0;
};

std::vector<std::string> NamesOf(const std::vector<Storage::Entry>& entries) {
  std::vector<std::string> names;
  for (const Storage::Entry& entry : entries) names.push_back(entry.directory ? entry.name + "/" : entry.name);
  return names;
}

TEST(S3DirectoryListsTest, Add_SmallDirectories_AreListedByOnePage) {
  Keys store({"r/j/000000000001/0001.verdict", "r/j/000000000001/0001/.owner", "r/j/000000000001/0001/rank00000-bin00",
              "r/j/000000000002/0001.verdict", "r/j/000000000003/pinned", "r/j/k/000000000001/0001.verdict"});
  const std::vector<std::string> names = {"000000000001", "000000000003", "000000000004"};
  S3DirectoryLists lists("r/j/", names);
  EXPECT_FALSE(lists.has(0));
  ASSERT_TRUE(lists.Add(store.PageBehind(lists.after(), "r/j/")).ok());
  ASSERT_TRUE(lists.complete());
  const std::vector<Storage::Entry> first = lists.Take(0);
  EXPECT_THAT(NamesOf(first), ElementsAre("0001/", "0001.verdict"));
  EXPECT_EQ(first[0].identity, "");
  EXPECT_EQ(first[1].identity, "of r/j/000000000001/0001.verdict");
  EXPECT_THAT(NamesOf(lists.Take(1)), ElementsAre("pinned"));
  EXPECT_THAT(NamesOf(lists.Take(2)), ElementsAre());
}

TEST(S3DirectoryListsTest, Add_ADirectoryOfManyFiles_PassesOverThem) {
  std::set<std::string> keys = {"j/000000000001/0002.verdict", "j/000000000002/0001.verdict"};
  for (int i = 0; i < 50'000; ++i) keys.insert(absl::StrFormat("j/000000000001/0001/rank%05d-bin00", i));
  Keys store(keys);
  const std::vector<std::string> names = {"000000000001", "000000000002"};
  S3DirectoryLists lists("j/", names);
  while (!lists.complete()) ASSERT_TRUE(lists.Add(store.PageBehind(lists.after(), "j/")).ok());
  EXPECT_EQ(store.requests(), 2);
  EXPECT_THAT(NamesOf(lists.Take(0)), ElementsAre("0001/", "0002.verdict"));
  EXPECT_THAT(NamesOf(lists.Take(1)), ElementsAre("0001.verdict"));
}

TEST(S3DirectoryListsTest, Add_RandomKeys_GivesWhatIsInEachDirectory) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int most) { return static_cast<int>(random() % static_cast<uint32_t>(most)); };
    std::set<std::string> keys;
    std::vector<std::string> names;
    for (int step = 0; step < 40; ++step) {
      const std::string directory = absl::StrFormat("p/job/%012d", step);
      if (below(4) > 0) names.push_back(directory.substr(6));
      for (int file = below(3); file > 0; --file) keys.insert(absl::StrCat(directory, "/000", file, ".verdict"));
      for (int attempt = below(3); attempt > 0; --attempt) {
        const int files = below(5) == 0 ? 2500 : below(30);
        for (int file = 0; file < files; ++file) keys.insert(absl::StrCat(directory, "/000", attempt, "/", file));
      }
      if (below(5) == 0) keys.insert(absl::StrCat(directory, "-other/0001.verdict"));
      if (below(5) == 0) keys.insert(absl::StrCat(directory, "/best.tag"));
    }
    Keys store(keys);
    S3DirectoryLists lists("p/job/", names);
    while (!lists.complete()) ASSERT_TRUE(lists.Add(store.PageBehind(lists.after(), "p/job/")).ok());
    for (size_t i = 0; i < names.size(); ++i) {
      EXPECT_TRUE(lists.has(i));
      EXPECT_EQ(NamesOf(lists.Take(i)), store.In("p/job/" + names[i])) << "seed " << seed << ", " << names[i];
    }
  }
}

TEST(S3DirectoryListsTest, Has_AfterAPage_OnlyWhatLiesBeforeItsEnd) {
  std::set<std::string> keys;
  for (int i = 0; i < 1'500; ++i) keys.insert(absl::StrFormat("j/%012d/0001.verdict", i));
  Keys store(keys);
  std::vector<std::string> names;
  for (int i = 0; i < 1'500; ++i) names.push_back(absl::StrFormat("%012d", i));
  S3DirectoryLists lists("j/", names);
  ASSERT_TRUE(lists.Add(store.PageBehind(lists.after(), "j/")).ok());
  EXPECT_FALSE(lists.complete());
  EXPECT_TRUE(lists.has(998));
  EXPECT_FALSE(lists.has(999)) << "it may have more than the page shows";
  EXPECT_FALSE(lists.has(1'000));
}

TEST(S3DirectoryListsTest, Add_APageThatGoesBack_IsAnErrorAndNotAnEndlessListing) {
  const std::vector<std::string> names = {"000000000001"};
  S3DirectoryLists lists("j/", names);
  EXPECT_TRUE(HasReason(lists.Add({{.name = "j/000000000000/0001.verdict"}}), Reason::kStorageError));
}

}  // namespace
}  // namespace cairn
