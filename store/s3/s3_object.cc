#include "store/s3/s3_object.h"

#include <aws/common/byte_buf.h>
#include <aws/common/date_time.h>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "common/base/crc32c.h"
#include "store/s3/http_status.h"

namespace cairn {

std::string Base64Crc(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes.data(), bytes.size());
  const char big_endian[] = {static_cast<char>(crc >> 24), static_cast<char>(crc >> 16), static_cast<char>(crc >> 8),
                             static_cast<char>(crc)};
  return absl::Base64Escape(absl::string_view(big_endian, sizeof(big_endian)));
}

std::optional<absl::Time> TimeOf(const std::string& text) {
  aws_date_time time;
  const aws_byte_cursor cursor = aws_byte_cursor_from_array(text.data(), text.size());
  if (aws_date_time_init_from_str_cursor(&time, &cursor, AWS_DATE_FORMAT_AUTO_DETECT) != AWS_OP_SUCCESS) {
    return std::nullopt;
  }
  return absl::FromUnixMillis(static_cast<int64_t>(aws_date_time_as_millis(&time)));
}

bool HasItsChecksum(const S3Answer& answer) {
  if (answer.status == kHttpPartialContent) return true;  // the checksum is of the whole
  const std::string crc = answer.Header("x-amz-checksum-crc32c");
  return crc.empty() || crc.find('-') != crc.npos || crc == Base64Crc(answer.body);
}

absl::StatusOr<S3Object> ObjectIn(const S3Address& address, const S3Request& request, const S3Reply& reply) {
  if (!reply.done()) return ErrorOf(address, request, reply);
  const S3Answer& answer = reply.answer;
  const auto modified = TimeOf(answer.Header("last-modified"));
  const auto now = TimeOf(answer.Header("date"));
  S3Object object;
  if (!absl::SimpleAtoi(answer.Header("content-length"), &object.bytes)) {
    return Lacks(address, request, "Content-Length");
  }
  if (!modified.has_value()) return Lacks(address, request, "Last-Modified");
  if (!now.has_value()) return Lacks(address, request, "Date");
  object.modified = *modified;
  object.now = *now;
  object.etag = answer.Header("etag");
  object.writer = answer.Header(kWriterHeader);
  return object;
}

}  // namespace cairn
