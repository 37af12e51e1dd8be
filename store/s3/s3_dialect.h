// What differs between the stores that speak the XML of S3: the names of headers, and what each of them does not have.
#ifndef CAIRN_STORE_S3_S3_DIALECT_H_
#define CAIRN_STORE_S3_S3_DIALECT_H_

#include <string>
#include <string_view>
#include <vector>

#include "store/s3/http_pool.h"

namespace cairn {

struct S3Dialect {
  // Whose credentials prove who asks.
  enum class Account { kAmazon, kGoogle };

  std::string scheme;  // of an address: "s3://"
  Account account = Account::kAmazon;

  // Variables of the environment: those that may name the endpoint, the first that is set counts; and the file with the
  // certificates of authorities.
  std::vector<const char*> endpoint_variables;
  const char* ca_variable = nullptr;
  // What to say where no endpoint was named and nothing answers.
  std::string without_endpoint;
  // Which names buckets have, in words.
  std::string bucket_names;

  // Headers that go along with a request.
  HttpHeaders if_absent;        // a PUT that replaces nothing
  HttpHeaders completion;       // the end of an upload that replaces nothing; empty if the store has no condition there
  HttpHeaders upload;           // the beginning of an upload
  HttpHeaders fetch;            // a GET that wants the checksum of the object
  std::string checksum_header;  // of a body, and of an object
  std::string checksum_prefix;  // what stands before the CRC32C in it
  std::string writer_header;    // the word of whoever has put an object
  // Headers of answers.
  std::string id_header;      // of the request
  std::string region_header;  // of the bucket; empty: the store has none

  bool deletion_has_checksum = false;  // the list of keys to delete
  bool deletion_is_quiet = false;      // may answer the errors only
  bool completion_has_checksums = false;

  // Returns the header with the checksum of a body.
  HttpHeaders::value_type ChecksumOf(std::string_view bytes) const;
};

const S3Dialect& AmazonDialect();
// Google Cloud Storage by its XML API.
const S3Dialect& GoogleDialect();

// Returns the dialect of a root that begins with its scheme; null if there is none.
const S3Dialect* DialectOf(std::string_view root);

// Returns the CRC32C of bytes as stores write it: big-endian, in base64.
std::string Base64Crc(std::string_view bytes);

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_DIALECT_H_
