#include "store/s3/s3_client.h"

#include <aws/common/byte_buf.h>
#include <aws/common/date_time.h>

#include <algorithm>
#include <random>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/crc32c.h"
#include "common/base/random_id.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr char kWriterHeader[] = "x-amz-meta-cairn-writer";
constexpr size_t kKeysInDeletion = 1000;

// As the header x-amz-checksum-crc32c has it.
std::string Base64Crc(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes.data(), bytes.size());
  const char big_endian[] = {static_cast<char>(crc >> 24), static_cast<char>(crc >> 16), static_cast<char>(crc >> 8),
                             static_cast<char>(crc)};
  return absl::Base64Escape(absl::string_view(big_endian, sizeof(big_endian)));
}

absl::Time TimeOf(const std::string& text) {
  aws_date_time time;
  const aws_byte_cursor cursor = aws_byte_cursor_from_array(text.data(), text.size());
  if (aws_date_time_init_from_str_cursor(&time, &cursor, AWS_DATE_FORMAT_AUTO_DETECT) != AWS_OP_SUCCESS) {
    return absl::InfiniteFuture();  // nothing is removed because it is old
  }
  return absl::FromUnixMillis(static_cast<int64_t>(aws_date_time_as_millis(&time)));
}

bool IsGood(int status) { return status >= 200 && status < 300; }

double Random() {
  thread_local std::minstd_rand engine(static_cast<unsigned>(RandomId()));
  return std::uniform_real_distribution<double>(0, 1)(engine);
}

}  // namespace

absl::StatusOr<std::unique_ptr<S3Client>> S3Client::Open(const S3Address& address, const Clock& clock,
                                                         const Options& options) {
  CAIRN_ASSIGN_OR_RETURN(auto wire, S3Wire::Open(address, options.wire));
  return std::unique_ptr<S3Client>(new S3Client(address, clock, options, std::move(wire)));
}

void S3Client::Enter() {
  MutexLock lock(mutex_);
  while (under_way_ >= window_.limit()) changed_.Wait(mutex_);
  ++under_way_;
}

void S3Client::Leave(S3Verdict verdict) {
  MutexLock lock(mutex_);
  --under_way_;
  if (verdict == S3Verdict::kSlowDown) window_.ToldToSlowDown(clock_.SteadyNow());
  if (verdict == S3Verdict::kFinal) {
    window_.Succeeded();
    last_success_ = clock_.SteadyNow();
  }
  changed_.NotifyAll();
}

S3Client::Final S3Client::Ask(const S3Request& request) {
  const absl::Time begun = clock_.SteadyNow();
  Final final;
  for (int attempt = 1;; ++attempt) {
    Enter();
    final.answer = wire_->Send(request);
    final.code.clear();
    final.message.clear();
    // Some errors come behind a good status, because the store had begun to answer.
    if (const auto xml = ParseS3Xml(final.answer.body); xml.ok() && xml->name == "Error") {
      final.code = xml->Text("Code");
      final.message = xml->Text("Message");
    }
    const S3Verdict verdict = JudgeS3Answer(final.answer.status, final.code);
    Leave(verdict);
    if (verdict == S3Verdict::kFinal) return final;
    final.in_doubt |= final.answer.sent;
    const absl::Time now = clock_.SteadyNow();
    absl::Time last_success;
    {
      MutexLock lock(mutex_);
      last_success = last_success_;
    }
    const absl::Duration patience = last_success == absl::InfinitePast() ? options_.first_patience : options_.patience;
    const bool hopeless = final.answer.no_credentials && attempt >= 3;
    if (hopeless || now - std::max(begun, last_success) > patience || now - begun > 10 * options_.patience) {
      final.given_up = true;
      return final;
    }
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(S3BackOff(attempt, Random())));
  }
}

absl::Status S3Client::ErrorOf(const S3Request& request, const Final& final) const {
  const S3Answer& answer = final.answer;
  const std::string file = absl::StrCat("s3://", address_.bucket, "/", request.key);
  const std::string id = answer.Header("x-amz-request-id");
  std::string text =
      answer.status == 0 ? answer.trouble : absl::StrCat("HTTP ", answer.status, " ", final.code, " ", final.message);
  if (!id.empty()) absl::StrAppend(&text, " (request ", id, ")");
  Reason reason = Reason::kStorageError;
  ErrorMetadata metadata = {{"file", file}, {"request", id}};
  if (final.code == "NoSuchBucket") {
    reason = Reason::kRootMissing;
  } else if (answer.status == 404) {
    reason = Reason::kFileMissing;
  } else if (answer.status == 403 || answer.status == 401 || answer.no_credentials) {
    reason = Reason::kStorageReadOnly;
    metadata.emplace_back("next", "Look at the credentials, and at what the policy of the bucket allows them.");
  } else if (answer.status == 507 || final.code == "QuotaExceeded") {
    reason = Reason::kNoSpace;
  } else if (const std::string region = answer.Header("x-amz-bucket-region");
             !region.empty() && region != address_.region) {
    absl::StrAppend(&text, ": the bucket is in the region ", region, ", and the request went to ", address_.region);
    metadata.emplace_back("next", absl::StrCat("Set AWS_REGION=", region, "."));
  }
  return MakeError(reason, absl::StrCat(request.method, " ", file, ": ", text), metadata);
}

absl::StatusOr<S3Xml> S3Client::AskForXml(const S3Request& request) {
  const Final final = Ask(request);
  if (final.given_up || !IsGood(final.answer.status) || !final.code.empty()) return ErrorOf(request, final);
  return ParseS3Xml(final.answer.body);
}

PutResult S3Client::PutObject(const std::string& key, std::string_view bytes, bool if_absent, absl::Time* now) {
  const std::string writer = RandomToken(16);
  S3Request request = {"PUT", key, "", {{"x-amz-checksum-crc32c", Base64Crc(bytes)}, {kWriterHeader, writer}}, bytes};
  if (if_absent) request.headers.emplace_back("If-None-Match", "*");
  const Final final = Ask(request);
  if (now != nullptr) *now = TimeOf(final.answer.Header("date"));
  if (!final.given_up && IsGood(final.answer.status) && final.code.empty()) return {Put::kCreated};
  const bool taken = final.answer.status == 412;
  if (taken && !final.in_doubt) return {Put::kExists};
  if (!taken && !final.in_doubt) return {ErrorOf(request, final)};
  // An earlier try may have put it. The word tells the own object from another one with equal bytes.
  const auto standing = Head(key);
  if (standing.ok() && standing->writer == writer) {
    if (now != nullptr) *now = standing->modified;
    return {Put::kCreated};
  }
  if (standing.ok() && if_absent) return {Put::kExists};
  return {
      standing.ok() || HasReason(standing.status(), Reason::kFileMissing) ? ErrorOf(request, final) : standing.status(),
      /*in_doubt=*/true};
}

absl::StatusOr<S3Object> S3Client::Head(const std::string& key) {
  const S3Request request = {"HEAD", key};
  const Final final = Ask(request);
  if (final.given_up || !IsGood(final.answer.status)) return ErrorOf(request, final);
  S3Object object;
  if (!absl::SimpleAtoi(final.answer.Header("content-length"), &object.bytes)) return ErrorOf(request, final);
  object.modified = TimeOf(final.answer.Header("last-modified"));
  object.now = TimeOf(final.answer.Header("date"));
  object.etag = final.answer.Header("etag");
  object.writer = final.answer.Header(kWriterHeader);
  return object;
}

absl::Status S3Client::Get(const std::string& key, const std::string& etag, uint64_t offset, uint64_t size, char* to) {
  if (size == 0) return absl::OkStatus();
  S3Request request = {"GET", key, "", {{"Range", absl::StrCat("bytes=", offset, "-", offset + size - 1)}}};
  if (!etag.empty()) request.headers.emplace_back("If-Match", etag);
  request.to = to;
  request.to_bytes = size;
  const Final final = Ask(request);
  if (!final.given_up && final.answer.status == 412) {
    const std::string file = absl::StrCat("s3://", address_.bucket, "/", key);
    return MakeError(Reason::kBadForeignFile, absl::StrCat(file, " was written anew while it was read"),
                     {{"file", file}});
  }
  const bool ends_before = final.answer.status == 416 || (IsGood(final.answer.status) && final.answer.received < size);
  if (!final.given_up && ends_before) {
    const std::string file = absl::StrCat("s3://", address_.bucket, "/", key);
    return MakeError(Reason::kFileTruncated, absl::StrCat(file, " ends before byte ", offset + size), {{"file", file}});
  }
  if (final.given_up || final.answer.status != 206) return ErrorOf(request, final);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<S3Client::Listed>> S3Client::List(const std::string& prefix, bool by_directory,
                                                             const std::string& after, size_t most) {
  std::vector<Listed> listed;
  std::string token;
  while (listed.size() < most) {
    S3Request request = {"GET", "",
                         absl::StrCat("list-type=2&max-keys=", std::min<size_t>(1000, most - listed.size()))};
    if (by_directory) absl::StrAppend(&request.query, "&delimiter=%2F");
    if (!prefix.empty()) absl::StrAppend(&request.query, "&prefix=", PercentEncoded(prefix, /*slash=*/true));
    if (!after.empty()) absl::StrAppend(&request.query, "&start-after=", PercentEncoded(after, /*slash=*/true));
    if (!token.empty()) absl::StrAppend(&request.query, "&continuation-token=", PercentEncoded(token, /*slash=*/true));
    CAIRN_ASSIGN_OR_RETURN(const S3Xml xml, AskForXml(request));
    for (const auto& [name, texts] : xml.elements) {
      Listed one;
      one.prefix = name == "CommonPrefixes";
      one.name = S3Xml::TextOf(texts, one.prefix ? "Prefix" : "Key");
      if (!one.prefix) {
        if (!absl::SimpleAtoi(S3Xml::TextOf(texts, "Size"), &one.bytes)) {
          return MakeError(Reason::kStorageError,
                           absl::StrCat("s3://", address_.bucket, "/", one.name, " was listed without its size"));
        }
        one.modified = TimeOf(S3Xml::TextOf(texts, "LastModified"));
      }
      if (one.name.starts_with(prefix)) listed.push_back(std::move(one));
    }
    token = xml.Text("NextContinuationToken");
    if (xml.Text("IsTruncated") != "true" || token.empty()) break;
  }
  std::sort(listed.begin(), listed.end(), [](const Listed& a, const Listed& b) { return a.name < b.name; });
  return listed;
}

absl::Status S3Client::Delete(const std::vector<std::string>& keys) {
  for (size_t begin = 0; begin < keys.size(); begin += kKeysInDeletion) {
    const size_t end = std::min(keys.size(), begin + kKeysInDeletion);
    const std::string body =
        DeletionXml({keys.begin() + static_cast<ptrdiff_t>(begin), keys.begin() + static_cast<ptrdiff_t>(end)});
    S3Request request = {
        "POST", "", "delete", {{"x-amz-checksum-crc32c", Base64Crc(body)}, {"Content-Type", "application/xml"}}, body};
    CAIRN_ASSIGN_OR_RETURN(const S3Xml xml, AskForXml(request));
    for (const auto& [name, texts] : xml.elements) {
      if (name != "Error" || S3Xml::TextOf(texts, "Code") == "NoSuchKey") continue;
      const std::string file = absl::StrCat("s3://", address_.bucket, "/", S3Xml::TextOf(texts, "Key"));
      return MakeError(
          Reason::kStorageError,
          absl::StrCat("delete ", file, ": ", S3Xml::TextOf(texts, "Code"), " ", S3Xml::TextOf(texts, "Message")),
          {{"file", file}});
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> S3Client::BeginUpload(const std::string& key, const std::string& writer) {
  // A try whose answer was lost leaves an upload without parts, which RemoveUnfinished finds.
  const S3Request request = {"POST", key, "uploads", {{"x-amz-checksum-algorithm", "CRC32C"}, {kWriterHeader, writer}}};
  CAIRN_ASSIGN_OR_RETURN(const S3Xml xml, AskForXml(request));
  if (std::string id = xml.Text("UploadId"); !id.empty()) return id;
  return MakeError(Reason::kStorageError,
                   absl::StrCat("s3://", address_.bucket, "/", key, ": the store named no upload"));
}

absl::StatusOr<S3Part> S3Client::PutPart(const std::string& key, const std::string& upload, int number,
                                         std::string_view bytes) {
  S3Part part = {number, "", Base64Crc(bytes)};
  const S3Request request = {"PUT",
                             key,
                             absl::StrCat("partNumber=", number, "&uploadId=", PercentEncoded(upload, /*slash=*/true)),
                             {{"x-amz-checksum-crc32c", part.crc32c}},
                             bytes};
  const Final final = Ask(request);
  part.etag = final.answer.Header("etag");
  if (final.given_up || !IsGood(final.answer.status) || part.etag.empty()) return ErrorOf(request, final);
  return part;
}

absl::StatusOr<Put> S3Client::Complete(const std::string& key, const std::string& upload,
                                       const std::vector<S3Part>& parts, const std::string& writer) {
  const std::string body = CompletionXml(parts);
  const S3Request request = {"POST",
                             key,
                             absl::StrCat("uploadId=", PercentEncoded(upload, /*slash=*/true)),
                             {{"If-None-Match", "*"}, {"Content-Type", "application/xml"}},
                             body};
  const Final final = Ask(request);
  if (!final.given_up && IsGood(final.answer.status) && final.code.empty()) return Put::kCreated;
  if (!final.given_up && !final.in_doubt && final.answer.status != 412) return ErrorOf(request, final);
  // An earlier try may have completed it; then the upload is gone, or the key is taken by its object.
  const auto standing = Head(key);
  if (standing.ok()) return standing->writer == writer ? Put::kCreated : Put::kExists;
  return HasReason(standing.status(), Reason::kFileMissing) ? ErrorOf(request, final) : standing.status();
}

absl::Status S3Client::Abort(const std::string& key, const std::string& upload) {
  const S3Request request = {"DELETE", key, absl::StrCat("uploadId=", PercentEncoded(upload, /*slash=*/true))};
  const Final final = Ask(request);
  if (!final.given_up && (IsGood(final.answer.status) || final.answer.status == 404)) return absl::OkStatus();
  return ErrorOf(request, final);
}

absl::StatusOr<std::vector<S3Client::Upload>> S3Client::Uploads(const std::string& prefix) {
  std::vector<Upload> uploads;
  std::string key_marker, id_marker;
  for (;;) {
    S3Request request = {"GET", "", "uploads"};
    if (!prefix.empty()) absl::StrAppend(&request.query, "&prefix=", PercentEncoded(prefix, /*slash=*/true));
    if (!key_marker.empty()) {
      absl::StrAppend(&request.query, "&key-marker=", PercentEncoded(key_marker, /*slash=*/true),
                      "&upload-id-marker=", PercentEncoded(id_marker, /*slash=*/true));
    }
    CAIRN_ASSIGN_OR_RETURN(const S3Xml xml, AskForXml(request));
    for (const auto& [name, texts] : xml.elements) {
      Upload upload = {S3Xml::TextOf(texts, "Key"), S3Xml::TextOf(texts, "UploadId"),
                       TimeOf(S3Xml::TextOf(texts, "Initiated"))};
      if (upload.key.starts_with(prefix)) uploads.push_back(std::move(upload));
    }
    const std::string next = xml.Text("NextKeyMarker");
    if (xml.Text("IsTruncated") != "true" || next.empty() || next < key_marker) return uploads;
    key_marker = next;
    id_marker = xml.Text("NextUploadIdMarker");
  }
}

}  // namespace cairn
