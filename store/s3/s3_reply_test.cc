#include "store/s3/s3_reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/status/reason.h"
#include "store/s3/s3_object.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

S3Reply Replied(int status, const std::string& body, bool content = false) {
  S3Answer answer;
  answer.status = status;
  answer.body = body;
  answer.headers["x-amz-request-id"] = "the-id";
  S3Reply reply;
  reply.Take(answer, content);
  reply.final = true;
  return reply;
}

S3Address Address() {
  S3Address address;
  address.bucket = "models";
  address.server.host = "store";
  address.path_style = true;
  return address;
}

TEST(S3ReplyTest, Take_AnErrorBehindAGoodStatus_IsNotDone) {
  EXPECT_TRUE(Replied(200, "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>").done());
  const S3Reply reply = Replied(200, "<Error><Code>InternalError</Code><Message>sorry</Message></Error>");
  EXPECT_FALSE(reply.done());
  EXPECT_EQ(reply.code, "InternalError");
  EXPECT_EQ(reply.message, "sorry");
}

TEST(S3ReplyTest, Take_AnObjectThatLooksLikeAnError_IsAnObject) {
  EXPECT_TRUE(Replied(200, "<Error><Code>InternalError</Code></Error>", /*content=*/true).done());
}

TEST(S3ReplyTest, ErrorOf_AnAnswer_NamesObjectAndRequest) {
  const auto error = [](int status, const std::string& code, const std::string& method = "GET") {
    return ErrorOf(Address(), {method, "a/b"}, Replied(status, "<Error><Code>" + code + "</Code></Error>"));
  };
  const absl::Status missing = error(404, "NoSuchKey");
  EXPECT_TRUE(HasReason(missing, Reason::kFileMissing));
  EXPECT_EQ(missing.message(), "GET s3://models/a/b: HTTP 404 NoSuchKey  (request the-id)");
  EXPECT_TRUE(HasReason(error(404, "NoSuchBucket"), Reason::kRootMissing));
  EXPECT_TRUE(HasReason(error(404, "NoSuchUpload"), Reason::kStorageError));
  EXPECT_TRUE(HasReason(error(404, "", "HEAD"), Reason::kFileMissing));
  EXPECT_TRUE(HasReason(error(403, "AccessDenied"), Reason::kStorageReadOnly));
  EXPECT_TRUE(HasReason(error(507, ""), Reason::kNoSpace));
  EXPECT_THAT(NextActionOf(ErrorOf(Address(), {"GET", "a"}, Replied(404, "default backend"))),
              HasSubstr("Look whether a proxy has answered"));
}

TEST(S3ObjectTest, ObjectIn_AnAnswer_MustHaveTimesAndLength) {
  S3Reply reply = Replied(200, "text", /*content=*/true);
  const auto object = [&] { return ObjectIn(Address(), {"GET", "a"}, reply); };
  EXPECT_THAT(std::string(object().status().message()), HasSubstr("lacks Content-Length"));
  reply.answer.headers["content-length"] = "4";
  EXPECT_THAT(std::string(object().status().message()), HasSubstr("lacks Last-Modified"));
  reply.answer.headers["last-modified"] = "Sun, 06 Nov 1994 08:49:37 GMT";
  EXPECT_THAT(std::string(object().status().message()), HasSubstr("lacks Date"));
  reply.answer.headers["date"] = "Sun, 06 Nov 1994 08:49:40 GMT";
  ASSERT_TRUE(object().ok()) << object().status();
  EXPECT_EQ(object()->bytes, 4u);
  EXPECT_EQ(object()->now - object()->modified, absl::Seconds(3));
}

TEST(S3ObjectTest, HasItsChecksum_OnlyAWholeObject_IsCompared) {
  S3Answer answer = Replied(200, "123456789", /*content=*/true).answer;
  EXPECT_TRUE(HasItsChecksum(AmazonDialect(), answer)) << "none was given";
  answer.headers["x-amz-checksum-crc32c"] = "4waSgw==";
  EXPECT_TRUE(HasItsChecksum(AmazonDialect(), answer));
  answer.body[0] = '2';
  EXPECT_FALSE(HasItsChecksum(AmazonDialect(), answer));
  answer.status = 206;
  EXPECT_TRUE(HasItsChecksum(AmazonDialect(), answer));
}

TEST(S3ObjectTest, HasItsChecksum_OfGoogle_StandsAmongOthers) {
  S3Answer answer = Replied(200, "123456789", /*content=*/true).answer;
  answer.headers["x-goog-hash"] = "crc32c=4waSgw==, md5=JfnnlDI7RTiF9RgfG2JNCw==";
  EXPECT_TRUE(HasItsChecksum(GoogleDialect(), answer));
  answer.body[0] = '2';
  EXPECT_FALSE(HasItsChecksum(GoogleDialect(), answer));
  answer.headers["x-goog-hash"] = "md5=JfnnlDI7RTiF9RgfG2JNCw==";
  EXPECT_TRUE(HasItsChecksum(GoogleDialect(), answer));
}

}  // namespace
}  // namespace cairn
