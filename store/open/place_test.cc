#include "store/open/place.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/format/full_name.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

TEST(PlaceTest, FullNameOf_AnAddress_HasNoSlashTooMany) {
  EXPECT_EQ(*FullNameOf("/models//llama/"), "/models//llama/") << "a path is resolved where it is read";
  EXPECT_EQ(*FullNameOf("s3://models"), "s3://models");
  EXPECT_EQ(*FullNameOf("s3://models/"), "s3://models");
  EXPECT_EQ(*FullNameOf("s3://models//a//b/"), "s3://models/a/b");
  EXPECT_EQ(*FullNameOf("gs://models//a/"), "gs://models/a");
}

TEST(PlaceTest, FullNameOf_WhatIsNoPlace_IsRefusedAndSaysWhatToGive) {
  for (const char* text : {"", "llama", "./s3://models/a", "../x", "s3://", "s3:///x", "s3://Models/x",
                           "s3://models/../x", "s3://models/a/./b"}) {
    EXPECT_TRUE(HasReason(FullNameOf(text).status(), Reason::kBadRequest)) << text << FullNameOf(text).status();
  }
  EXPECT_TRUE(HasReason(FullNameOf(std::string("/a\0b", 4)).status(), Reason::kBadRequest));
  for (const char* text : {"az://models/x", "s3:/models/x", "gs:/models/x"}) {
    EXPECT_TRUE(HasReason(FullNameOf(text).status(), Reason::kUnsupported)) << text;
  }
  const absl::Status options = FullNameOf("s3://models/x?endpoint=http://store").status();
  EXPECT_TRUE(HasReason(options, Reason::kBadRequest)) << options;
  EXPECT_NE(NextActionOf(options).find("Give s3://models/x, and set AWS_ENDPOINT_URL_S3 and AWS_REGION"),
            std::string::npos);
  const std::string google = NextActionOf(FullNameOf("gs://models/x?endpoint=http://store").status());
  EXPECT_NE(google.find("Give gs://models/x, and set CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE where"), std::string::npos)
      << google;
}

TEST(PlaceTest, FindPlace_AnAddress_IsABucketAndAKey) {
  const auto place = FindPlace("s3://models/a/b?c");
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->storage->root(), "s3://models");
  EXPECT_EQ(place->path, "a/b?c");
  EXPECT_EQ(place->storage->FullPath(place->path), "s3://models/a/b?c");
  EXPECT_EQ(FindPlace("s3://models/other")->storage, place->storage) << "it is opened once";
  EXPECT_EQ(FindPlace("s3://models")->path, "");
  const auto google = FindPlace("gs://models/a/b");
  ASSERT_TRUE(google.ok()) << google.status();
  EXPECT_EQ(google->storage->root(), "gs://models") << "it is another bucket than Amazon's of the same name";
  EXPECT_EQ(google->path, "a/b");
  for (const char* name : {"s3://Models/x", "s3://models?region=x/y", "s3:///x"}) {
    EXPECT_TRUE(HasReason(FindPlace(name).status(), Reason::kBadRequest)) << name;
  }
}

TEST(PlaceTest, FindPlace_ManyBuckets_ForgetsThoseThatWereUsedFirst) {
  const auto kept = FindPlace("s3://bucket-kept/x");
  const std::weak_ptr<Storage> first = FindPlace("s3://bucket-first/x")->storage;
  EXPECT_FALSE(first.expired());
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(FindPlace(absl::StrCat("s3://bucket-", i, "/x")).ok());
    EXPECT_EQ(FindPlace("s3://bucket-kept/x")->storage, kept->storage);
  }
  EXPECT_TRUE(first.expired());
}

TEST(PlaceTest, OpenAnywhere_AFileOfThisMachine_IsReadByItsFullName) {
  const std::string directory = absl::StrCat(testing::TempDir(), "/place-", RandomToken(6));
  std::filesystem::create_directories(directory);
  const std::string top = std::filesystem::canonical(directory).string();
  std::ofstream(top + "/file") << "content";
  std::filesystem::create_symlink("file", top + "/link");
  ASSERT_EQ(mkfifo((top + "/pipe").c_str(), 0600), 0);
  const auto file = OpenAnywhere(top + "/file");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->path(), top + "/file");
  EXPECT_EQ(*ReadAll(**file, 100), "content");
  EXPECT_TRUE(HasReason(OpenAnywhere(top + "/file", {.bytes = 8}).status(), Reason::kFileTruncated));
  EXPECT_TRUE(HasReason(OpenAnywhere(top + "/none").status(), Reason::kFileMissing));
  EXPECT_TRUE(HasReason(OpenAnywhere(top + "/link").status(), Reason::kPathEscape));
  EXPECT_TRUE(HasReason(OpenAnywhere(top + "/../x").status(), Reason::kPathEscape));
  EXPECT_FALSE(OpenAnywhere(top).ok());
  const absl::Status pipe = OpenAnywhere(top + "/pipe").status();
  EXPECT_NE(pipe.message().find("no regular file"), std::string::npos) << pipe;
  std::filesystem::remove_all(top);
}

TEST(PlaceTest, CanonicalNameOf_SpellingsOfOnePlace_AreOne) {
  const std::string directory = absl::StrCat(testing::TempDir(), "/place-", RandomToken(6));
  std::filesystem::create_directories(directory + "/root");
  const std::string top = std::filesystem::canonical(directory).string();
  std::filesystem::create_symlink("root", top + "/link");
  for (const char* name : {"/root", "/root/", "//root", "/./root", "/x/../root", "/link", "/link/"}) {
    EXPECT_EQ(CanonicalNameOf(top + name), top + "/root") << name;
  }
  EXPECT_EQ(CanonicalNameOf(top + "/link/none/"), top + "/root/none");
  EXPECT_EQ(CanonicalNameOf("/"), "/");
  EXPECT_EQ(CanonicalNameOf("s3://models/a/"), "s3://models/a");
  std::filesystem::remove_all(top);
}

TEST(PlaceTest, LieWithinEachOther_OnePlaceAtOrBelowTheOther_IsFound) {
  EXPECT_TRUE(LieWithinEachOther("/ckpt", "/ckpt"));
  EXPECT_TRUE(LieWithinEachOther("/ckpt", "/ckpt/mirror"));
  EXPECT_TRUE(LieWithinEachOther("/ckpt/mirror", "/ckpt"));
  EXPECT_TRUE(LieWithinEachOther("/", "/ckpt"));
  EXPECT_TRUE(LieWithinEachOther("s3://models/llm", "s3://models"));
  EXPECT_FALSE(LieWithinEachOther("/ckpt", "/ckpt2"));
  EXPECT_FALSE(LieWithinEachOther("/ckpt/a", "/ckpt/b"));
  EXPECT_FALSE(LieWithinEachOther("s3://models/llm", "gs://models/llm"));
  EXPECT_FALSE(LieWithinEachOther("s3://models/llm", "s3://models/llm?endpoint=http://other"));
}

TEST(PlaceTest, NewUploadTo_WhatIsNoKey_IsRefusedWithoutARequest) {
  EXPECT_TRUE(NewUploadTo("s3://models/a/b").ok());
  EXPECT_TRUE(HasReason(NewUploadTo("/models/a").status(), Reason::kBadRequest));
  EXPECT_TRUE(HasReason(NewUploadTo("s3://Models/a").status(), Reason::kBadRequest));
  EXPECT_TRUE(HasReason(NewUploadTo("s3://models/a/../b").status(), Reason::kPathEscape));
  EXPECT_TRUE(HasReason(NewUploadTo("s3://models").status(), Reason::kPathEscape));
}

TEST(PlaceTest, OpenAnywhere_AKeyThatLeavesItsDirectory_IsRefusedWithoutARequest) {
  for (const char* name :
       {"s3://models/a/../b", "s3://models//b", "s3://models/b/", "s3://models/./b", "s3://models"}) {
    EXPECT_TRUE(HasReason(OpenAnywhere(name).status(), Reason::kPathEscape)) << name;
  }
}

TEST(FullNameTest, IsFullName_AbsolutePathsAndAddresses) {
  for (const char* name : {"/a", "s3://bucket/key", "gs://bucket/key"}) EXPECT_TRUE(IsFullName(name)) << name;
  for (const char* name : {"", "rank00000-bin00", "s3:/bucket", "a/s3://b", "az://bucket/key"})
    EXPECT_FALSE(IsFullName(name)) << name;
}

}  // namespace
}  // namespace cairn
