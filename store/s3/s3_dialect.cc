#include "store/s3/s3_dialect.h"

#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"

namespace cairn {

std::string Base64Crc(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes.data(), bytes.size());
  const char big_endian[] = {static_cast<char>(crc >> 24), static_cast<char>(crc >> 16), static_cast<char>(crc >> 8),
                             static_cast<char>(crc)};
  return absl::Base64Escape(absl::string_view(big_endian, sizeof(big_endian)));
}

HttpHeaders::value_type S3Dialect::ChecksumOf(std::string_view bytes) const {
  return {checksum_header, absl::StrCat(checksum_prefix, Base64Crc(bytes))};
}

const S3Dialect& AmazonDialect() {
  static const S3Dialect* const dialect = new S3Dialect{
      .scheme = "s3://",
      .account = S3Dialect::Account::kAmazon,
      .endpoint_variables = {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"},
      .ca_variable = "AWS_CA_BUNDLE",
      .without_endpoint =
          "No AWS_ENDPOINT_URL is set, so Amazon is asked: set it if the store is another one; else "
          "check the region, proxy and network",
      .bucket_names = "3 to 63 lower-case letters, digits, dots and hyphens",
      .if_absent = {{"If-None-Match", "*"}},
      .completion = {{"If-None-Match", "*"}},
      .upload = {{"x-amz-checksum-algorithm", "CRC32C"}},
      .fetch = {{"x-amz-checksum-mode", "ENABLED"}},
      .checksum_header = "x-amz-checksum-crc32c",
      .checksum_prefix = "",
      .writer_header = "x-amz-meta-cairn-writer",
      .id_header = "x-amz-request-id",
      .region_header = "x-amz-bucket-region",
      .deletion_has_checksum = true,
      .deletion_is_quiet = true,
      .completion_has_checksums = true,
  };
  return *dialect;
}

const S3Dialect& GoogleDialect() {
  // It refuses requests that mix the headers of both, and it ignores If-None-Match where something is written.
  static const S3Dialect* const dialect = new S3Dialect{
      .scheme = "gs://",
      .account = S3Dialect::Account::kGoogle,
      .endpoint_variables = {"CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", "STORAGE_EMULATOR_HOST"},
      .ca_variable = "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
      .without_endpoint = "Check proxy and network",
      .bucket_names = "3 to 222 lower-case letters, digits, dots, hyphens and underscores",
      .if_absent = {{"x-goog-if-generation-match", "0"}},
      .completion = {},
      .upload = {},
      .fetch = {},
      .checksum_header = "x-goog-hash",
      .checksum_prefix = "crc32c=",
      .writer_header = "x-goog-meta-cairn-writer",
      .id_header = "x-guploader-uploadid",
      .region_header = "",
      .deletion_has_checksum = false,
      .deletion_is_quiet = false,
      .completion_has_checksums = false,
  };
  return *dialect;
}

const S3Dialect* DialectOf(std::string_view root) {
  for (const S3Dialect* dialect : {&AmazonDialect(), &GoogleDialect()}) {
    if (root.starts_with(dialect->scheme)) return dialect;
  }
  return nullptr;
}

}  // namespace cairn
