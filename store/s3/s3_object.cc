#include "store/s3/s3_object.h"

#include <aws/common/byte_buf.h>
#include <aws/common/date_time.h>

#include "absl/strings/numbers.h"
#include "store/s3/http_status.h"

namespace cairn {

std::optional<absl::Time> TimeOf(const std::string& text) {
  aws_date_time time;
  const aws_byte_cursor cursor = aws_byte_cursor_from_array(text.data(), text.size());
  if (aws_date_time_init_from_str_cursor(&time, &cursor, AWS_DATE_FORMAT_AUTO_DETECT) != AWS_OP_SUCCESS) {
    return std::nullopt;
  }
  return absl::FromUnixMillis(static_cast<int64_t>(aws_date_time_as_millis(&time)));
}

bool HasItsChecksum(const S3Dialect& dialect, const S3Answer& answer) {
  if (answer.status == kHttpPartialContent) return true;  // the checksum is of the whole
  const std::string all = answer.Header(dialect.checksum_header);
  const size_t begin = all.find(dialect.checksum_prefix);
  if (all.empty() || begin == all.npos) return true;
  const std::string from = all.substr(begin + dialect.checksum_prefix.size());
  const std::string crc = from.substr(0, from.find(','));
  // One that was made of those of parts has their number behind it.
  return crc.find('-') != crc.npos || crc == Base64Crc(answer.body);
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
  object.writer = answer.Header(address.dialect->writer_header);
  return object;
}

}  // namespace cairn
