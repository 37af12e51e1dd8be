#include "store/s3/s3_listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Entry(const std::string& key) {
  return absl::StrCat("<Contents><Key>", key, "</Key><Size>1</Size><ETag>e</ETag></Contents>");
}

S3Xml Page(const std::string& entries, const std::string& token = "") {
  const std::string end = token.empty() ? "<IsTruncated>false</IsTruncated>"
                                        : absl::StrCat("<IsTruncated>true</IsTruncated><NextContinuationToken>", token,
                                                       "</NextContinuationToken>");
  return *ParseS3Xml(absl::StrCat("<ListBucketResult>", entries, end, "</ListBucketResult>"));
}

std::vector<std::string> NamesOf(S3Listing& listing) {
  std::vector<std::string> names;
  for (const S3Listed& one : listing.Take()) names.push_back(one.name);
  return names;
}

TEST(S3ListingTest, Add_PagesOfKeysAndDirectories_ComeInTheirOrder) {
  S3Listing listing("a/", /*by_directory=*/true, "a/b", SIZE_MAX);
  EXPECT_EQ(listing.Query(), "list-type=2&max-keys=1000&delimiter=%2F&prefix=a%2F&start-after=a%2Fb");
  EXPECT_EQ(
      listing.Add(Page(absl::StrCat(Entry("a/d"), "<CommonPrefixes><Prefix>a/c/</Prefix></CommonPrefixes>"), "more/")),
      "");
  EXPECT_FALSE(listing.complete());
  EXPECT_THAT(listing.Query(), HasSubstr("&continuation-token=more%2F"));
  EXPECT_EQ(listing.Add(Page(Entry("a/e"))), "");
  EXPECT_TRUE(listing.complete());
  EXPECT_THAT(NamesOf(listing), ElementsAre("a/c/", "a/d", "a/e"));
}

TEST(S3ListingTest, Add_AsManyAsAreWanted_AsksForNoMore) {
  S3Listing listing("", /*by_directory=*/false, "", 2);
  EXPECT_THAT(listing.Query(), HasSubstr("max-keys=2"));
  EXPECT_EQ(listing.Add(Page(Entry("a"), "more")), "");
  EXPECT_THAT(listing.Query(), HasSubstr("max-keys=1&"));
  EXPECT_EQ(listing.Add(Page(Entry("b"), "more")), "");
  EXPECT_TRUE(listing.complete());
}

TEST(S3ListingTest, Add_WhatIsNoPage_SaysWhatItLacks) {
  const auto lacking = [](const S3Xml& page) { return S3Listing("a/", true, "", SIZE_MAX).Add(page); };
  EXPECT_EQ(lacking(*ParseS3Xml("<ListBucketResult><Name>b</Name></ListBucketResult>")),
            "IsTruncated, or the token of what follows");
  EXPECT_EQ(lacking(*ParseS3Xml("<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>")),
            "IsTruncated, or the token of what follows");
  EXPECT_EQ(lacking(Page("<Contents><Key>a/b</Key></Contents>")), "the size of a/b");
  EXPECT_EQ(lacking(Page("<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>")), "the name of a directory");
}

TEST(S3ListingTest, Add_ThePageBeforeAgain_IsNoEndlessListing) {
  S3Listing listing("", /*by_directory=*/false, "", SIZE_MAX);
  EXPECT_EQ(listing.Add(Page(Entry("a"), "1")), "");
  EXPECT_EQ(listing.Add(Page(Entry("a"), "2")), "names behind those before");
  S3Listing empty("", /*by_directory=*/false, "", SIZE_MAX);
  std::string lacking;
  for (int pages = 0; pages < 1000 && lacking.empty(); ++pages) lacking = empty.Add(Page("", "more"));
  EXPECT_EQ(lacking, "names behind those before");
}

TEST(S3ListingTest, Take_WhatCameTwice_IsThereOnce) {
  S3Listing listing("", /*by_directory=*/false, "", SIZE_MAX);
  EXPECT_EQ(listing.Add(Page(Entry("a") + Entry("b") + Entry("a"))), "");
  EXPECT_THAT(NamesOf(listing), ElementsAre("a", "b"));
}

}  // namespace
}  // namespace cairn
