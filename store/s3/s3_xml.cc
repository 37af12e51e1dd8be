#include "store/s3/s3_xml.h"

#include <aws/common/byte_buf.h>
#include <aws/common/common.h>
#include <aws/common/xml_parser.h>

#include <array>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

std::string NameOf(aws_xml_node* node) {
  const aws_byte_cursor name = aws_xml_node_get_name(node);
  return {reinterpret_cast<const char*>(name.ptr), name.len};
}

int TakeText(aws_xml_node* node, S3Xml::Texts& texts) {
  std::string name = NameOf(node);
  aws_byte_buf text;
  aws_byte_buf_init(&text, aws_default_allocator(), 64);
  const int result = aws_xml_node_as_body_unescaped(aws_default_allocator(), node, &text);
  if (result == AWS_OP_SUCCESS) {
    texts[std::move(name)] = std::string(reinterpret_cast<const char*>(text.buffer), text.len);
  }
  aws_byte_buf_clean_up(&text);
  return result;
}

int OnElementOfElement(aws_xml_node* node, void* data) { return TakeText(node, *static_cast<S3Xml::Texts*>(data)); }

int OnElement(aws_xml_node* node, void* data) {
  constexpr std::array<std::string_view, 5> kMany = {"Contents", "CommonPrefixes", "Upload", "Deleted", "Error"};
  auto& xml = *static_cast<S3Xml*>(data);
  for (const std::string_view many : kMany) {
    if (NameOf(node) != many) continue;
    xml.elements.emplace_back(std::string(many), S3Xml::Texts());
    return aws_xml_node_traverse(node, OnElementOfElement, &xml.elements.back().second);
  }
  return TakeText(node, xml.texts);
}

int OnTop(aws_xml_node* node, void* data) {
  auto& xml = *static_cast<S3Xml*>(data);
  xml.name = NameOf(node);
  return aws_xml_node_traverse(node, OnElement, data);
}

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

}  // namespace

absl::StatusOr<S3Xml> ParseS3Xml(std::string_view text) {
  S3Xml xml;
  aws_xml_parser_options options = {};
  options.doc = aws_byte_cursor_from_array(text.data(), text.size());
  options.on_root_encountered = OnTop;
  options.user_data = &xml;
  if (aws_xml_parse(aws_default_allocator(), &options) == AWS_OP_SUCCESS && !xml.name.empty()) return xml;
  return MakeError(Reason::kStorageError,
                   absl::StrCat("the store's answer is no XML: ", std::string(text.substr(0, 100))));
}

std::string CompletionXml(const std::vector<S3Part>& parts) {
  std::string text = "<CompleteMultipartUpload>";
  for (const S3Part& part : parts) {
    absl::StrAppend(&text, "<Part><PartNumber>", part.number, "</PartNumber><ETag>", Escaped(part.etag), "</ETag>");
    if (!part.crc32c.empty()) absl::StrAppend(&text, "<ChecksumCRC32C>", part.crc32c, "</ChecksumCRC32C>");
    text += "</Part>";
  }
  return text + "</CompleteMultipartUpload>";
}

std::string DeletionXml(const std::vector<std::string>& keys, bool quiet) {
  std::string text = absl::StrCat("<Delete>", quiet ? "<Quiet>true</Quiet>" : "");
  for (const std::string& key : keys) absl::StrAppend(&text, "<Object><Key>", Escaped(key), "</Key></Object>");
  return text + "</Delete>";
}

}  // namespace cairn
