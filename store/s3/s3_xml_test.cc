#include "store/s3/s3_xml.h"

#include <gtest/gtest.h>

#include "common/status/reason.h"

namespace cairn {
namespace {

TEST(S3XmlTest, ParseS3Xml_AListing_HasItsTextsAndElements) {
  const auto xml = ParseS3Xml(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<ListBucketResult "
      "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name><IsTruncated>true</IsTruncated>"
      "<NextContinuationToken>a&amp;b</NextContinuationToken>"
      "<Contents><Key>x&lt;y</Key><Size>5</Size><Owner><ID>1</ID></Owner></Contents>"
      "<Contents><Key>z</Key><Size>0</Size></Contents>"
      "<CommonPrefixes><Prefix>d/</Prefix></CommonPrefixes></ListBucketResult>");
  ASSERT_TRUE(xml.ok()) << xml.status();
  EXPECT_EQ(xml->name, "ListBucketResult");
  EXPECT_EQ(xml->Text("NextContinuationToken"), "a&b");
  EXPECT_EQ(xml->Text("Absent"), "");
  ASSERT_EQ(xml->elements.size(), 3u);
  EXPECT_EQ(S3Xml::TextOf(xml->elements[0].second, "Key"), "x<y");
  EXPECT_EQ(S3Xml::TextOf(xml->elements[1].second, "Size"), "0");
  EXPECT_EQ(xml->elements[2].first, "CommonPrefixes");
}

TEST(S3XmlTest, ParseS3Xml_NoXml_IsAnErrorOfStorage) {
  for (const char* text :
       {"", "x", "<", "<a>", "<a><b></a>", "<?xml", "<html><body>Bad gateway", "<a><Contents><Key>"}) {
    const auto xml = ParseS3Xml(text);
    EXPECT_TRUE(xml.ok() || HasReason(xml.status(), Reason::kStorageError)) << text;
  }
  EXPECT_FALSE(ParseS3Xml("").ok());
  EXPECT_FALSE(ParseS3Xml("<a>").ok());
}

TEST(S3XmlTest, DeletionXml_AKeyWithMarkup_IsEscaped) {
  EXPECT_EQ(DeletionXml({"a&b"}, /*quiet=*/true),
            "<Delete><Quiet>true</Quiet><Object><Key>a&amp;b</Key></Object></Delete>");
  EXPECT_EQ(DeletionXml({"a"}, /*quiet=*/false), "<Delete><Object><Key>a</Key></Object></Delete>");
}

}  // namespace
}  // namespace cairn
